"""Where a message goes that does not go into the session's thread: channels by name, people by address."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.outbound.rate_limiter import Hold
from bot.wire.client import AuthLost, Permanent, RateLimited, classify
from engine.language.codec import Json

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
