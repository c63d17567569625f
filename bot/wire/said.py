"""Messages of a thread or a channel, as text for an agent that is called into it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.wire.client import classify, described, pages, passing
from bot.wire.users import LookupFailed
from engine.language import timestamps
from engine.language.codec import Json
from prompt_state.slack_text import text_in

log = logging.getLogger("sayso.agent")

MOST_REPLIES = 2_000
"""The newest of a thread, beside the message that it begins with: Slack gives the oldest first, so all its pages are read."""
_PAGE = 999
_LONGEST = 4_000


@dataclass(eq=False, repr=False)
class Said:
    """Reads with the bot's rights. What Slack refuses is said in words; where it does not answer now, that is raised."""

    _client: AsyncWebClient
    _bot: str
    _name_of: Callable[[str], Awaitable[str]]
    _said_in: Callable[[Mapping[str, Any]], str]
    """Gives what a message says, in Slack's markup."""

    async def __call__(self, place: Mapping[str, Json]) -> list[str]:
        """The messages of a place `{channel, thread, most, since}`, a line each, the newest last. Of the bot's own only those
        from before `since`: what it said there before it was called. Raises `SlackFault`, `LookupFailed`."""
        try:
            found = await self._messages(place)
            return [await self._line(message) for message in found if self._counts(message, place)]
        except LookupFailed:
            raise
        except Exception as error:
            if passing(error):
                raise classify(error) from error
            log.warning("the messages of %s cannot be read: %s", place.get("channel"), error)
            return [f"(It could not be read: {classify(error)})"]

    async def _messages(self, place: Mapping[str, Json]) -> list[Mapping[str, Any]]:
        channel, thread, most = place["channel"], place.get("thread"), int(place.get("most") or _PAGE)
        if thread is None:
            answer = await self._client.conversations_history(channel=channel, limit=most)
            return list(reversed(answer["messages"]))

        def ask(cursor: str) -> Any:
            return self._client.conversations_replies(channel=channel, ts=thread, limit=_PAGE, cursor=cursor)

        first: list[Mapping[str, Any]] = []
        replies: deque[Mapping[str, Any]] = deque(maxlen=MOST_REPLIES)
        async for answer in pages(ask):
            # The first message is on every page.
            first = [message for message in answer["messages"] if message["ts"] == thread]
            replies += [message for message in answer["messages"] if message["ts"] != thread]
        return [*first, *replies]

    def _counts(self, message: Mapping[str, Any], place: Mapping[str, Json]) -> bool:
        if message.get("subtype") in ("channel_join", "channel_leave", "tombstone"):
            return False
        before = float(message["ts"]) < timestamps.from_text(str(place["since"])).timestamp()
        return message.get("user") != self._bot or before

    async def _line(self, message: Mapping[str, Any]) -> str:
        user = str(message.get("user") or "")
        who = f"app {message.get('username') or message.get('bot_id') or ''}".rstrip()
        if user:
            name = await self._name_of(user)
            who = user if name == user else f"{name} ({user})"
        at = timestamps.told(timestamps.to_text(datetime.fromtimestamp(float(message["ts"]), UTC)))
        # The bot's own blocks repeat its text.
        own = message.get("user") == self._bot
        text = text_in(str(message.get("text") or "") if own else self._said_in(message))
        # No line of a message can pass for the first line of another one.
        text = text[:_LONGEST].replace("\n", "\n    ")
        files = ", ".join(str(file["name"]) for file in described(message))
        return f"[{at}] {who}: {text}{f' (files: {files})' if files else ''}"
