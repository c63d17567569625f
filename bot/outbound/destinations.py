"""Where a message goes that does not go into the session's thread, how addresses become mentions, and as whom agents
speak."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.intents.agent_rows import agent_of
from bot.outbound.calls import Hold
from bot.outbound.posts import Sessions
from bot.rendering.flow import around, label_of
from bot.wire.client import AuthLost, Permanent, RateLimited, classify
from engine.journal.state import State
from engine.language.codec import Json
from engine.language.errors import SaysoError

log = logging.getLogger("sayso.outbound")

KEEP_SECONDS = 600.0
AGAIN_SECONDS = 2.0
"""How long to wait where Slack could not be asked."""
DM = "dm:"
_USER = re.compile(r"[UW][A-Z0-9]{2,}")


class Places:
    """Looks up Slack's ids, and keeps them for a while.

    Raises `Permanent` for what does not exist, and `Hold` where Slack cannot say it now: nothing was posted then.
    """

    def __init__(self, client: AsyncWebClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._named: dict[str, str] = {}
        self._named_at = float("-inf")
        self._direct: dict[str, str] = {}

    async def channel(self, to: str, requester: Mapping[str, Json] | None) -> str:
        """The conversation that `to` means: an id, `#name`, or `dm:` and a person."""
        if to.startswith(DM):
            return await self.direct(await self.person(to.removeprefix(DM), requester))
        return await self._by_name(to.removeprefix("#")) if to.startswith("#") else to

    async def person(self, entry: str, requester: Mapping[str, Json] | None) -> str:
        """The user id of one person: an id, an e-mail address, or `requester`."""
        found = entry
        if entry == "requester":
            found = str((requester or {}).get("id") or "")
        elif "@" in entry:
            answer = await self._ask(self._client.users_lookupByEmail(email=entry))
            found = str(answer["user"]["id"])
        if not _USER.fullmatch(found):
            raise Permanent("user_not_found", f"{entry} is nobody in this workspace")
        return found

    async def direct(self, user: str) -> str:
        """The direct message with somebody. Opening it again changes nothing."""
        if user not in self._direct:
            answer = await self._ask(self._client.conversations_open(users=user))
            self._direct[user] = str(answer["channel"]["id"])
        return self._direct[user]

    async def _by_name(self, name: str) -> str:
        if name not in self._named or self._clock() - self._named_at > KEEP_SECONDS:
            self._named = await self._list()
            self._named_at = self._clock()
        if name not in self._named:
            raise Permanent(
                "channel_not_found", f"there is no channel #{name} that the bot is in: invite it there"
            )
        return self._named[name]

    async def _list(self) -> dict[str, str]:
        """The channels that the bot is in: it can post in no others."""
        found: dict[str, str] = {}
        cursor = ""
        while True:
            answer = await self._ask(
                self._client.users_conversations(
                    types="public_channel,private_channel", exclude_archived=True, limit=200, cursor=cursor
                )
            )
            found |= {str(channel["name"]): str(channel["id"]) for channel in answer["channels"]}
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                return found

    async def _ask(self, call: Any) -> Any:
        try:
            return await call
        except Exception as error:
            fault = classify(error)
            if isinstance(fault, Permanent | AuthLost):
                raise fault from error
            seconds = fault.retry_after if isinstance(fault, RateLimited) else AGAIN_SECONDS
            raise Hold(seconds, f"looking up where to post: {fault}") from error


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


_KEPT = 500


class Speakers:
    """What agents are called above what they say. Once it is said of one it stays, whoever else is done meanwhile."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._called: dict[tuple[str, str], str] = {}

    async def of(self, data: Mapping[str, Json]) -> str:
        """Which agent said an entry, as mrkdwn; empty where there is only one. `data` is the entry's row."""
        key = (data["sessionId"], agent_of(data["turn"]))
        if key not in self._called:
            if len(self._called) >= _KEPT:
                self._called.clear()
            self._called[key] = await self._place(*key, data)
        return self._called[key]

    async def _place(self, session_id: str, agent: str, data: Mapping[str, Json]) -> str:
        if "/" not in agent and not data.get("beside"):
            return ""
        try:
            flow = await self._sessions.flow(session_id)
        except SaysoError:
            return ""
        outside = around(State(), flow, agent, data.get("items") or {})
        return " › ".join([*outside, label_of(flow, agent)])
