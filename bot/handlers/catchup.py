"""Reads messages that were not delivered: after a start, after any gap, and in a channel that is open to the bot again.

By channel: the pages of a channel's history hold the mentions and reactions that were missed there, and the time of
each thread's last reply. Only threads that moved are read, those with the newest questions first. So a quiet channel
takes one call however many threads wait in it; threads so far back that pages cost more are read one by one.

A thread's mark records the progress of a completed read, and only a completed read moves it: a live reply must not jump
over a missed one. All findings go the same way as an event, under the same key, so a message that was delivered too is
taken once. Reads yield to calls that people wait for (`bot.wire.budget`); a thread in which somebody writes meanwhile
is read at once.

A message that was edited before it was read is taken in its current form if its first one was never seen; else its
author is told that the edit does not count, as for any other edit. That includes messages read before, within a day, if
their thread is read anyway.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import count, pairwise
from typing import Any, TypeAlias

from slack_sdk.errors import SlackApiError

from bot.handlers.delivered import OPEN, Delivered, known_until
from bot.inbound import decisions, payloads
from bot.inbound.meaning import Missed, still_counts
from bot.inbound.triggers import DEAF, Listening
from bot.rendering import phrases
from bot.wire.budget import Urgency, urgency
from bot.wire.client import BudgetedClient, code_of, pages
from engine.journal.records import Head, InboxItem
from engine.storage.backoff import waited_out
from engine.storage.group_commit import Writer

log = logging.getLogger("sayso.catchup")

DAY_SECONDS = 86400.0
INSTALLED = "installed"
"""Mark set at the very first start: earlier messages are not for this installation."""

AHEAD_SECONDS = 3600.0
MOST_THREADS = 100_000
AGAIN_SECONDS = 15.0
"""Seconds before failed reads are retried."""

TOLD_SECONDS = 60.0
"""Seconds between two lines of the log about the progress of a long read."""

PAGE, LARGE_PAGE = 200, 999
"""Messages of a channel in one answer, and where more than `MANY_PAGES` would be needed."""
MANY_PAGES = 5

Message: TypeAlias = dict[str, Any]
Read: TypeAlias = Callable[[str], Awaitable[int]]

_END = (math.inf, "")
"""Behind the threads that moved: there will be no more."""
_KINDS = ("public_channel", "private_channel", "im")
_REPLIES, _HISTORY, _LISTING = "conversations.replies", "conversations.history", "users.conversations"
_GONE = ("channel_not_found", "thread_not_found", "not_in_channel", "missing_scope", "message_not_found")


@dataclass(eq=False, repr=False)
class CatchUp:
    """The reads that are due. Pending ones have a number, so that one that becomes due again while it is read stays. `first`
    gives the id that a channel had when it was first known."""

    client: BudgetedClient
    writer: Writer
    home: decisions.Home
    _: KW_ONLY
    now: Callable[[], str]
    taken: Callable[[], None]
    clock: Callable[[], float] = time.time
    hears: Callable[[], Listening] = lambda: DEAF
    first: Callable[[str], str] = lambda channel: channel
    delivered: Delivered | None = None

    def __post_init__(self) -> None:
        self._delivered = self.delivered or Delivered(self.writer, time.monotonic)
        self._numbers = count()
        self._kinds = self._numbered(_KINDS)
        self._channels: dict[str, int] = {}
        self._unread: dict[str, int] = {}
        self._back: set[str] = set()
        self._moved: asyncio.PriorityQueue[tuple[float, str]] = asyncio.PriorityQueue()
        self._tried: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}
        self._done: Counter[str] = Counter()
        self._told_at = 0.0

    def _numbered(self, names: Iterable[str]) -> dict[str, int]:
        """These names, numbered as they become due."""
        return {name: next(self._numbers) for name in names}

    # --- what is due ---------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """True if all could be read so far; else call `run()` again after a while."""
        return not (self._kinds or self._channels or self._unread or self._back)

    def unread(self, key: str) -> bool:
        """True if a thread is due."""
        return key in self._unread or _channel_of(key) in self._back

    def all_read(self) -> None:
        """Another process has read all since the gap."""
        self._kinds, self._channels, self._unread, self._back = {}, {}, {}, set()

    async def begin(self) -> None:
        """Begin after a gap: every thread of an open session may have undelivered messages."""
        self._delivered.begin()
        self._unread = self._numbered(dict.fromkeys(_in_order(await self._open_heads())))
        self._kinds = self._numbered(_KINDS)
        self._tried.clear()

    async def again(self, channel: str) -> None:
        """Read a channel that the bot can read again, whose messages were not delivered meanwhile."""
        heads = [head for head in await self._open_heads() if _channel_of(str(head.thread_key)) == channel]
        self._unread |= self._numbered(_in_order(heads))
        self._channels |= self._numbered([channel])
        self._back.discard(channel)

    def regained(self, key: str) -> None:
        """Read the channel of a thread that takes posts again, whose messages were not delivered meanwhile."""
        self.reread(key)
        self._back.add(_channel_of(key))

    def reread(self, key: str) -> None:
        """Read a thread that may have undelivered messages."""
        self._unread |= self._numbered([key])

    async def _open_heads(self) -> list[Head]:
        heads = await self.writer.call(self.writer.store.sessions.heads, statuses=OPEN, limit=MOST_THREADS)
        return [head for head in heads if (head.thread_key or "").startswith(f"{self.home.team_id}:")]

    def progress(self) -> str | None:
        """Return the progress of the read as text, or None if nothing is due."""
        if self.complete:
            return None
        channels, threads = len(self._channels), len(self._unread)
        budget = self.client.budget
        seconds = max(
            budget.seconds_for(_HISTORY, channels), budget.seconds_for(_REPLIES, self._moved.qsize())
        )
        return phrases.catching_up(self._done[_HISTORY], channels, self._done[_REPLIES], threads, seconds)

    # --- reading all that is due ---------------------------------------------------------------------------

    async def run(self) -> int:
        """Read all that may have been missed; how many messages were new. Can be cut off and begun again."""
        for channel in list(self._back):
            await waited_out(partial(self.again, channel), "reading missed messages")
        self._done, self._moved, self._told_at = Counter(), asyncio.PriorityQueue(), self.clock()
        self._tried.clear()
        waiting = dict.fromkeys(_channel_of(key) for key in self._unread)
        self._channels = {**self._numbered(waiting), **self._channels}
        with urgency(Urgency.PROGRESS):
            async with asyncio.TaskGroup() as group:
                moved = group.create_task(self._read_moved())
                # Channels in which threads wait, and then all others: a mention can be missed anywhere.
                found = await self._each_channel()
                for kind in list(self._kinds):
                    await self._guarded(self._list, self._kinds, kind)
                found += await self._each_channel()
                self._moved.put_nowait(_END)
        found += moved.result()
        if found:
            log.info("catch-up found %d messages that were not delivered", found)
        return found

    async def ensure(self, key: str | None) -> int:
        """Read this thread if it was not read since the gap; returns the number of new messages. New arrivals wait for
        it, since missed messages are older. Raises nothing: a thread that cannot be read now is read at the next
        `run()`."""
        if key is None or key not in self._unread:
            return 0
        return await self._once(key)

    async def read(self, key: str) -> int:
        """Read a thread whose session has just begun, for earlier messages; returns the number of new ones."""
        self.reread(key)
        return await self.ensure(key)

    async def _once(self, key: str) -> int:
        """Read a thread unless that was done since the gap; concurrent callers wait for it."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            found = await self._guarded(self._thread, self._unread, key) if key in self._unread else 0
        self._locks.pop(key, None)
        return found

    async def _guarded(self, read: Read, due: dict[str, int], name: str) -> int:
        """Read without letting one failure stop the others: a failed read stays due, unless it is refused for good."""
        number, found = due[name], 0
        try:
            found = await read(name)
        except Exception as error:
            code = code_of(error) if isinstance(error, SlackApiError) else None
            if code not in _GONE:
                log.warning("catch-up of %s failed and is tried again: %r", name, code or error)
                return 0
            log.info("catch-up of %s: %s", name, code)
            for key in [key for key in self._unread if _channel_of(key) == name]:
                del self._unread[key]
        if due.get(name) == number:
            del due[name]
        # A thread's key, a kind of conversations, or a channel's id.
        self._done[_REPLIES if ":" in name else _LISTING if name in _KINDS else _HISTORY] += 1
        if self.clock() - self._told_at >= TOLD_SECONDS and not self.complete:
            self._told_at = self.clock()
            log.info("catch-up: %s", self.progress())
        return found

    # --- channels ------------------------------------------------------------------------------------------

    async def _each_channel(self) -> int:
        found = 0
        for channel in [channel for channel in self._channels if channel not in self._tried]:
            self._tried.add(channel)
            found += await self._guarded(self._channel, self._channels, channel)
        return found

    async def _list(self, kind: str) -> int:
        """The conversations of one kind that the bot is in: each kind needs a right of its own."""

        def ask(cursor: str) -> Any:
            return self.client.users_conversations(
                types=kind, exclude_archived=True, limit=200, cursor=cursor
            )

        listed = [self.first(channel["id"]) async for answer in pages(ask) for channel in answer["channels"]]
        fresh = [channel for channel in listed if channel not in self._tried | self._channels.keys()]
        self._channels |= self._numbered(fresh)
        return 0

    async def _history(self, channel: str, expected: float, **asked: Any) -> Any:
        """A page of a channel; larger where many are expected."""
        limit = LARGE_PAGE if expected > MANY_PAGES else PAGE
        return await self.client.conversations_history(channel=channel, limit=limit, **asked)

    async def _channel(self, channel: str) -> int:
        """Read a channel back to its mark, and further where threads wait; those that moved are queued."""
        prefix = f"{self.home.team_id}:{channel}:"
        due = {key: number for key, number in self._unread.items() if key.startswith(prefix)}
        roots = {key.removeprefix(prefix): number for key, number in due.items()}
        # A channel is read from where the last reading ended, but at most a day back.
        day_ago = f"{self.clock() - DAY_SECONDS:.6f}"
        installed = await self.writer.call(self.writer.store.marks.ts, INSTALLED) or day_ago
        read = await self.writer.call(self.writer.store.marks.ts, f"channel:{channel}") or installed
        floor = max(read, day_ago, key=float)
        oldest = min([floor, *roots], key=float)
        # Without `latest` Slack may begin with the oldest ones. Its clock may be ahead of ours.
        latest = f"{self.clock() + AHEAD_SECONDS:.6f}"
        found, reacted, newest, end, reach, expected = [], [], floor, oldest, math.inf, 0.0

        async def ask(cursor: str) -> Any:
            return await self._history(
                channel, expected, latest=latest, oldest=oldest, inclusive=True, cursor=cursor
            )

        async for answer in pages(ask):
            messages = answer["messages"]
            for part in _parts(messages):
                for message in part:
                    found += self._found(message, channel, floor)
                    if float(message["ts"]) > float(floor):
                        reacted += self._reactions(message, channel)
                        newest = max(newest, message["ts"], key=float)
                await self._judge(prefix, part, roots)
            reach, end = _reach(messages), _end(messages, newest)
            expected = (float(end) - float(floor)) / reach
            if answer.get("has_more") and float(end) <= float(floor):
                break
            end = oldest
        self._queue(prefix, roots, end)
        new = await self._take([*await self._heard_first(found), *reacted], f"channel:{channel}", newest)
        await self._far_back(channel, prefix, roots, reach)
        return new

    async def _far_back(self, channel: str, prefix: str, roots: dict[str, int], reach: float) -> None:
        """Read threads from before a channel's mark: by page where one will show several, judged by the range of the
        last page; one by one otherwise, for that is one call too."""
        while roots:
            order = sorted(roots, key=float, reverse=True)
            near = (float(ts) - float(before) <= reach for ts, before in pairwise(order))
            alone = next((number for number, is_near in enumerate(near) if is_near), len(order))
            if alone:
                self._queue(prefix, roots, order[alone - 1])
                continue
            newest, oldest = order[0], order[-1]
            expected = (float(newest) - float(oldest)) / reach
            answer = await self._history(channel, expected, latest=newest, oldest=oldest, inclusive=True)
            messages = answer["messages"]
            for part in _parts(messages):
                await self._judge(prefix, part, roots)
            reach = _reach(messages)
            self._queue(prefix, roots, _end(messages, newest) if answer.get("has_more") else oldest)

    def _queue(self, prefix: str, roots: dict[str, int], since: str) -> None:
        """Queue threads from there on. Those missing from a page that should show them may be gone."""
        for ts in [ts for ts in roots if float(ts) >= float(since)]:
            self._moved.put_nowait((roots.pop(ts), prefix + ts))

    async def _judge(self, prefix: str, messages: Sequence[Message], roots: dict[str, int]) -> None:
        """Sort the threads on a page: unmoved ones are done, the others are to be read."""
        here = [message for message in messages if message["ts"] in roots]
        keys = [prefix + message["ts"] for message in here if message.get("reply_count")]
        known = await self.writer.call(known_until, self.writer.store, keys)
        for message in here:
            ts: str = message["ts"]
            key, number = prefix + ts, roots.pop(ts)
            if has_moved(message, known.get(key, ts), self.home.bot_user_id):
                self._moved.put_nowait((number, key))
            elif self._unread.get(key) == number:
                del self._unread[key]
                self._done[_REPLIES] += 1

    # --- threads -------------------------------------------------------------------------------------------

    async def _read_moved(self) -> int:
        """The threads that are found to have moved, those with the newest questions first."""
        found = 0
        while (entry := await self._moved.get()) != _END:
            number, key = entry
            if self._unread.get(key) == number:
                # Not under the thread's lock, so that writers there do not wait for this turn. This turn does not wait
                # for the lock either: its holder may get no other turn. Threads that cannot be read stay due.
                async with self.client.budget.reserved(_REPLIES):
                    if key not in self._locks:
                        found += await self._once(key)
        return found

    async def _thread(self, key: str) -> int:
        _, channel, thread_ts = key.split(":", 2)
        scope = f"thread:{key}"
        mark = await self.writer.call(self.writer.store.marks.ts, scope) or thread_ts
        found, newest = [], mark
        oldest = f"{max(float(thread_ts), float(mark) - DAY_SECONDS):.6f}"

        def ask(cursor: str) -> Any:
            return self.client.conversations_replies(
                channel=channel, ts=thread_ts, oldest=oldest, limit=200, cursor=cursor
            )

        async for answer in pages(ask):
            for message in answer["messages"]:
                if message["ts"] != thread_ts:
                    found += self._found(message, channel, mark)
                newest = max(newest, message["ts"], key=float)
        return await self._take(await self._heard_first(found), scope, newest)

    # --- findings ------------------------------------------------------------------------------------------

    def _found(self, message: Message, channel: str, mark: str) -> list[Missed]:
        """A message that was said or edited since a mark, if it is for us."""
        since = float(mark)
        if max(float(message["ts"]), float(payloads.edited_ts(message))) <= since:
            return []
        found = payloads.missed(message, self.home, channel, self.hears())
        return [] if found is None else [Missed(*found, float(message["ts"]) > since)]

    async def _heard_first(self, found: list[Missed]) -> list[InboxItem]:
        """Return the messages and edits to be stored, given what was received of them before."""
        store, items = self.writer.store, list[InboxItem]()
        for missed in found:
            heard = told = None
            if missed.edit is not None:
                heard = await self.writer.call(store.inbox.row, missed.item.key)
                told = await self.writer.call(store.inbox.row, missed.edit.key)
            item = still_counts(missed, heard, told)
            items += [] if item is None else [item]
        return items

    def _reactions(self, message: Message, channel: str) -> list[InboxItem]:
        """Reactions that start something, on messages that are read anyway; those on older ones stay missed."""
        hears = self.hears()
        return [
            payloads.reaction(self.home, channel, message["ts"], entry["name"], user).item
            for entry in message.get("reactions") or ()
            if next(hears.reactions(str(entry["name"])), None) is not None
            for user in entry.get("users") or ()
            if user != self.home.bot_user_id
        ]

    async def _take(self, items: list[InboxItem], scope: str, newest: str) -> int:
        """Store the findings in the order in which they were sent, and then move the mark."""
        items.sort(key=lambda item: float(item.key.split(":")[3]))
        stored = await self.writer.ingest(items, self.now()) if items else []
        await self.writer.call(self.writer.store.marks.move, scope, newest)
        new = sum(1 for row_id in stored if row_id is not None)
        if new:
            self.taken()
        return new


def has_moved(root: Message, known: str, us: str) -> bool:
    """True if a thread may have undelivered messages, judged by the last reply in its root. `known` is its newest
    message that was read or delivered. The number of replies proves nothing: one may be deleted for another."""
    latest = root.get("latest_reply")
    if not latest or (root.get("reply_users") == [us] and root.get("reply_users_count") == 1):
        return bool(root.get("reply_count")) and not latest
    return float(latest) > float(known)


def _parts(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Split a page into parts too small for the work on one to be noticed."""
    return (messages[at : at + PAGE] for at in range(0, len(messages), PAGE))


def _reach(messages: Sequence[Message]) -> float:
    """The seconds of a channel that a page holds, by how close these messages are."""
    times = [float(message["ts"]) for message in messages]
    span = max(times) - min(times) if times else 0.0
    return span / (len(times) - 1) * PAGE if span else math.inf


def _end(messages: Sequence[Message], newest: str) -> str:
    """The time of the oldest message of a page."""
    return min((message["ts"] for message in messages), key=float, default=newest)


def _channel_of(key: str) -> str:
    return key.split(":")[1] if ":" in key else ""


def _in_order(heads: Iterable[Head]) -> list[str]:
    """The threads of sessions: those that wait for people before those that run, the latest first."""
    latest = sorted(heads, key=lambda head: head.updated_at, reverse=True)
    return [str(head.thread_key) for head in sorted(latest, key=lambda head: head.status != "paused")]
