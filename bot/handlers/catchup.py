"""Reads what was said while nobody listened: after a start and after any gap.

A thread's mark says how far a completed read has come, and only a completed read moves it: a live reply may not jump
over a missed one. Everything found goes the same way as an event, under the same key, so what was delivered too
is taken once. Threads that wait are read first, those with the newest prompts foremost; then channels, for
mentions that were missed, a day back. All this stands back behind whoever waits for an answer (`bot.wire.budget`); a
thread in which somebody writes meanwhile is read at once.

A message that was edited before it was read is taken with the words that it has now, if nobody heard the first ones;
else its author is told that the edit does not count, as for any other edit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from slack_sdk.errors import SlackApiError

from bot.inbound import decisions, payloads
from bot.wire.budget import Urgency, urgency
from bot.wire.client import BudgetedClient, code_of, pages
from engine.journal.records import Head, InboxItem
from engine.storage.group_commit import Writer

log = logging.getLogger("sayso.catchup")

DAY_SECONDS = 86400.0
INSTALLED = "installed"
"""Mark set at the very first start: what was said before it is not for this installation."""

MOST_THREADS = 100_000
AGAIN_SECONDS = 15.0
"""After how long what could not be read is tried again."""

Missed: TypeAlias = tuple[InboxItem, InboxItem | None]
"""A message that was found, and the edit of it, if it was edited."""

_KINDS = ("public_channel", "private_channel", "im")
_GONE = ("channel_not_found", "thread_not_found", "not_in_channel", "missing_scope", "message_not_found")


class CatchUp:
    """One catch-up read over everything that waits."""

    def __init__(
        self,
        client: BudgetedClient,
        writer: Writer,
        home: decisions.Home,
        *,
        now: Callable[[], str],
        taken: Callable[[], None],
        clock: Callable[[], float] = time.time,
        hears: Callable[[], decisions.Hears] = lambda: decisions.DEAF,
        first: Callable[[str], str] = lambda channel: channel,
    ) -> None:
        """`first` gives the id that a channel had when it was first known."""
        self._client = client
        self._writer = writer
        self._home = home
        self._now = now
        self._taken = taken
        self._clock = clock
        self._hears = hears
        self._first = first
        self._unread: dict[str, None] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._failed: dict[str, None] = {}

    @property
    def complete(self) -> bool:
        """Whether all could be read so far; else `run()` is to be called again after a while."""
        return not self._failed

    async def begin(self) -> None:
        """There was a gap: every thread with a session that has not ended may hold what was not delivered."""
        heads = await self._open_heads()
        self._unread = dict.fromkeys(
            head.thread_key for head in sorted(heads, key=_newest) if head.thread_key
        )

    async def again(self, channel: str) -> None:
        """The bot can read a channel again: what was said there meanwhile was not delivered."""
        heads: list[Head] = await self._open_heads()
        back = [head.thread_key for head in heads if (head.thread_key or "").split(":")[1:2] == [channel]]
        self._unread |= dict.fromkeys(key for key in back if key)

    async def _open_heads(self) -> list[Head]:
        heads = await self._writer.call(
            self._writer.store.heads, statuses=("running", "paused"), limit=MOST_THREADS
        )
        return heads

    async def run(self) -> int:
        """Read all that may have been missed; how many messages were new. Can be cut off and begun again."""
        with urgency(Urgency.PROGRESS):
            return await self._run()

    async def _run(self) -> int:
        found = 0
        again, self._failed = self._failed, {}
        self._unread = {**{key: None for key in again if ":" in key}, **self._unread}
        while self._unread:
            # Not under the thread's lock: who writes there meanwhile does not wait for this turn.
            async with self._client.budget.reserved("conversations.replies"):
                if self._unread:
                    found += await self._once(next(iter(self._unread)))
        for kind in _KINDS:
            for channel in await self._channels(kind):
                found += await self._guarded(self._channel(channel), channel)
        if found:
            log.info("catch-up found %d messages that were not delivered", found)
        return found

    async def ensure(self, key: str | None) -> int:
        """Read this thread if it was not read since the gap; how many messages were new. What arrives now waits for
        it, since what was missed is older. Raises nothing: a thread that cannot be read now is read at the next `run()`."""
        if key is None or key not in self._unread:
            return 0
        return await self._once(key)

    async def _once(self, key: str) -> int:
        """Read a thread unless that was done since the gap; who comes while it is read waits for that."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            found = await self._guarded(self._thread(key), key) if key in self._unread else 0
            self._unread.pop(key, None)
        self._locks.pop(key, None)
        return found

    def reread(self, key: str) -> None:
        """A thread may hold what was not delivered."""
        self._unread[key] = None

    async def read(self, key: str) -> int:
        """Read a thread whose session began just now, for what was said there before it; how many messages were new."""
        self.reread(key)
        return await self.ensure(key)

    async def _guarded(self, read: Any, scope: str) -> int:
        """One scope's failure must not keep the others from being read; its mark stays, so it is read again."""
        try:
            return int(await read)
        except Exception as error:
            self._note_failure(scope, error)
        return 0

    def _note_failure(self, scope: str, error: Exception) -> None:
        """What is refused for good is left alone; anything else is to be read again."""
        code = code_of(error) if isinstance(error, SlackApiError) else None
        if code in _GONE:
            log.info("catch-up of %s: %s", scope, code)
            return
        self._failed[scope] = None
        log.warning("catch-up of %s failed and is tried again: %s", scope, code or repr(error))

    async def _thread(self, key: str) -> int:
        team, channel, thread_ts = key.split(":", 2)
        if team != self._home.team_id:
            return 0
        scope = f"thread:{key}"
        mark = await self._writer.call(self._writer.store.mark, scope) or thread_ts
        found, newest = [], mark

        def ask(cursor: str) -> Any:
            return self._client.conversations_replies(
                channel=channel, ts=thread_ts, oldest=mark, limit=200, cursor=cursor
            )

        async for answer in pages(ask):
            for message in answer["messages"]:
                if message["ts"] != thread_ts:
                    found += self._found(message, channel)
                newest = max(newest, message["ts"], key=float)
        return await self._take(await self._heard_first(found), scope, newest)

    async def _channel(self, channel: str) -> int:
        scope = f"channel:{channel}"
        day_ago = f"{self._clock() - DAY_SECONDS:.6f}"
        installed = await self._writer.call(self._writer.store.mark, INSTALLED) or day_ago
        read = await self._writer.call(self._writer.store.mark, scope) or installed
        mark = max(read, day_ago, key=float)
        found, reacted, newest = [], [], mark

        def ask(cursor: str) -> Any:
            return self._client.conversations_history(channel=channel, oldest=mark, limit=200, cursor=cursor)

        async for answer in pages(ask):
            for message in answer["messages"]:
                found += self._found(message, channel)
                reacted += self._reactions(message, channel)
                newest = max(newest, message["ts"], key=float)
        return await self._take([*await self._heard_first(found), *reacted], scope, newest)

    def _found(self, message: dict[str, Any], channel: str) -> list[Missed]:
        found = payloads.missed(message, self._home, channel, self._hears())
        return [found] if found is not None else []

    async def _heard_first(self, found: list[Missed]) -> list[InboxItem]:
        """What is taken of the messages found; of an edited one only its edit, where it was heard before."""
        items = []
        for item, edit in found:
            if edit is not None:
                heard, told = [
                    await self._writer.call(self._writer.store.inbox_row, one.key) for one in (item, edit)
                ]
                if heard is not None or (told is not None and told.outcome is not None):
                    item = edit
            items.append(item)
        return items

    def _reactions(self, message: dict[str, Any], channel: str) -> list[InboxItem]:
        """Reactions that start something, on messages that are read anyway; those on older ones stay missed."""
        hears = self._hears()
        return [
            payloads.reaction(self._home, channel, message["ts"], entry["name"], user).item
            for entry in message.get("reactions") or ()
            if next(hears.reactions(str(entry["name"])), None) is not None
            for user in entry.get("users") or ()
            if user != self._home.bot_user_id
        ]

    async def _take(self, items: list[InboxItem], scope: str, newest: str) -> int:
        """Store what was found, in the order in which it was said, and then move the mark."""
        items.sort(key=_said_at)
        stored = await self._writer.ingest(items, self._now()) if items else []
        await self._writer.call(self._writer.store.set_mark, scope, newest)
        new = sum(1 for row_id in stored if row_id is not None)
        if new:
            self._taken()
        return new

    async def _channels(self, kind: str) -> list[str]:
        """The conversations of one kind that the bot is in: each kind needs a right of its own."""

        def ask(cursor: str) -> Any:
            return self._client.users_conversations(
                types=kind, exclude_archived=True, limit=200, cursor=cursor
            )

        try:
            found = [channel async for answer in pages(ask) for channel in answer["channels"]]
        except Exception as error:
            self._note_failure(f"{kind} conversations", error)
            return []
        return [self._first(channel["id"]) for channel in found]


def _said_at(item: InboxItem) -> float:
    """When what an item is about was said."""
    return float(item.key.split(":")[3])


def _newest(head: Head) -> tuple[int, str]:
    """Threads that wait for people before those that run, the latest first."""
    return (
        0 if head.status == "paused" else 1,
        "".join(chr(0x10FFFF - ord(char)) for char in head.updated_at),
    )
