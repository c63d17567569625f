"""Channels by id and by name. Flows may name a channel as `#ops`; everything that is stored has ids."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.wire.users import LookupFailed

KEEP_SECONDS = 300.0
"""How long a channel's name is remembered."""


class Channels:
    """Looks channels up in Slack."""

    def __init__(self, client: AsyncWebClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._names: dict[str, tuple[float, str]] = {}
        self._ids: tuple[float, dict[str, str]] | None = None

    async def among(self, channel: str, entries: Collection[str] | None) -> bool:
        """Whether a channel is one of those that a flow lists; None lists all. Raises `LookupFailed`."""
        if entries is None or channel in entries:
            return True
        named = {entry.removeprefix("#").lower() for entry in entries if entry.startswith("#")}
        return bool(named) and (await self.name(channel)).lower() in named

    async def name(self, channel: str) -> str:
        """The name of a channel, without `#`; empty for a direct message. Raises `LookupFailed`."""
        kept = self._names.get(channel)
        if kept is not None and self._clock() - kept[0] < KEEP_SECONDS:
            return kept[1]
        try:
            found: Any = (await self._client.conversations_info(channel=channel))["channel"]
        except Exception as error:
            raise LookupFailed(f"Slack did not say what channel {channel} is: {_reason(error)}") from error
        name = str(found.get("name") or "")
        self._names[channel] = (self._clock(), name)
        return name

    async def id_of(self, entry: str) -> str | None:
        """The id of a channel that the bot is in, by id or `#name`; None where it is in none of that name. Raises
        `LookupFailed`."""
        if not entry.startswith("#"):
            return entry
        wanted = entry[1:].lower()
        if self._ids is None or self._clock() - self._ids[0] >= KEEP_SECONDS or wanted not in self._ids[1]:
            try:
                self._ids = (self._clock(), await self._ask_ids())
            except Exception as error:
                raise LookupFailed(f"Slack did not say which channel {entry} is: {_reason(error)}") from error
        return self._ids[1].get(wanted)

    async def _ask_ids(self) -> dict[str, str]:
        found: dict[str, str] = {}
        cursor = ""
        while True:
            answer = await self._client.users_conversations(
                types="public_channel,private_channel", exclude_archived=True, limit=200, cursor=cursor
            )
            found |= {str(channel["name"]).lower(): str(channel["id"]) for channel in answer["channels"]}
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                return found


def _reason(error: Exception) -> str:
    return str(error.response.get("error")) if isinstance(error, SlackApiError) else str(error)
