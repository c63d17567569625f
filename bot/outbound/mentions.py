"""Slack's ids of e-mail addresses and user groups, so that prompts can mention whom they ask."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.wire.client import classify

log = logging.getLogger("sayso.outbound")

KEEP_SECONDS = 600.0
MOST_SECONDS = 3.0
"""A prompt is shown without mentions rather than much later."""


class Names:
    """Looks ids up and keeps them for a while. What cannot be looked up is shown as it is written."""

    def __init__(
        self, client: AsyncWebClient, clock: Callable[[], float], *, most_seconds: float = MOST_SECONDS
    ) -> None:
        self._client = client
        self._clock = clock
        self._most = most_seconds
        self._kept: dict[str, tuple[float, dict[str, str]]] = {}

    async def __call__(self, entries: Iterable[str]) -> dict[str, str]:
        """The ids of those entries that are known. Never raises."""
        known: dict[str, str] = {}
        try:
            async with asyncio.timeout(self._most):
                for entry in entries:
                    if entry.startswith("@"):
                        known |= await self._keep("@", self._groups, "")
                    elif "@" in entry:
                        known |= await self._keep(entry, self._person, entry)
        except Exception as error:
            log.info("some of those who are asked could not be looked up and are not mentioned: %s", error)
        return known

    async def _groups(self, _: str) -> dict[str, str]:
        answer = await self._client.usergroups_list()
        return {f"@{group['handle']}": str(group["id"]) for group in answer["usergroups"]}

    async def _person(self, email: str) -> dict[str, str]:
        answer = await self._client.users_lookupByEmail(email=email)
        return {email: str(answer["user"]["id"])}

    async def _keep(self, key: str, ask: Callable[[str], Any], argument: str) -> dict[str, str]:
        kept = self._kept.get(key)
        if kept is not None and self._clock() - kept[0] < KEEP_SECONDS:
            return kept[1]
        found: dict[str, str] = {}
        try:
            found = await ask(argument)
        except SlackApiError as error:
            log.info("%s is not mentioned: %s", key, classify(error))
        self._kept[key] = (self._clock(), found)
        return found
