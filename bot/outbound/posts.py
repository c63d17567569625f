"""Posting once: the attempt is durable before the request, and a request whose outcome is unknown is looked up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Literal, TypeAlias

from bot.config.tuning import LOOK_DELAYS
from bot.outbound.calls import POST, Calls, Hold, Place, Posted
from bot.rendering.blocks import Rendered
from bot.rendering.notes import duplicate
from bot.wire.client import AuthLost, Permanent, RateLimited, SlackFault, classify
from engine.flow import Flow
from engine.journal.records import Head, InboxItem, InboxRow, OutboxRow, PutOutbox
from engine.journal.state import State
from engine.language import timestamps
from engine.language.codec import Json, decode, encode
from engine.language.errors import FenceLost
from engine.nodes.runtime.effects import FREE, permitted, under
from engine.nodes.types.spec import Meter
from engine.storage.group_commit import Writer

log = logging.getLogger("sayso.outbound")


@dataclass(frozen=True, slots=True)
class Sent:
    """The row is done: what is recorded of it, and the inbox items that follow."""

    result: dict[str, Json]
    items: Sequence[InboxItem] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The row will never be sent: why, and the inbox items that follow."""

    result: dict[str, Json]
    items: Sequence[InboxItem] = ()


Outcome: TypeAlias = Sent | Failed

OVERTAKEN_SECONDS = 0.1
"""Seconds before a row is read again that has changed."""
DROPPED: dict[str, Json] = {"dropped": True}


@dataclass(frozen=True, slots=True)
class Sessions:
    """Reads a session as it is now: its state, and the flow that it pinned."""

    state: Callable[[str], Awaitable[State]]
    flow: Callable[[str], Awaitable[Flow]]
    meters: Callable[[str], Mapping[str, Meter]] = lambda session_id: {}
    """Returns the progress of its running nodes, by path."""
    lacks: Callable[[Flow], Awaitable[Sequence[str]]] | None = None
    """Returns the resources of a flow that are missing in this installation."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The outbox as those see it who send its rows: what is read of it and recorded in it. `now` is the time as it is
    stored. Every write is durable on return; all raise `StorageError`."""

    writer: Writer
    now: Callable[[], str]

    async def row(self, key: str) -> OutboxRow | None:
        """A row, in any state."""
        return await self.writer.call(self.writer.store.outbox.row, key)

    async def of(self, session_id: str, prefix: str) -> list[OutboxRow]:
        """The rows of a session whose keys begin so, in any state."""
        return await self.writer.call(self.writer.store.outbox.of, session_id, prefix)

    async def arrived(self, key: str) -> InboxRow | None:
        """Return the row that arrived under this key, done or not."""
        return await self.writer.call(self.writer.store.inbox.row, key)

    async def head(self, session_id: str) -> Head | None:
        """Return the head of a session, or None."""
        return await self.writer.call(self.writer.store.sessions.head, session_id)

    async def put(self, rows: Sequence[PutOutbox]) -> None:
        """More is to be sent."""
        await self.writer.call(self.writer.store.consume, [], self.now(), rows)

    async def note(self, name: str, value: str) -> None:
        """Keep a mark."""
        await self.writer.call(self.writer.store.marks.move, name, value)

    async def attempt(self, row: OutboxRow) -> None:
        """A request is about to be made. Raises `Hold` where another process has made one since the row was read."""
        if not await self.writer.call(self.writer.store.outbox.attempt, row.id, row.attempts, self.now()):
            raise Hold(OVERTAKEN_SECONDS, f"{row.key} was sent, or is being sent, by another process")

    async def keep(self, row: OutboxRow, result: dict[str, Json]) -> OutboxRow:
        """Record partial results of a row, whose state stays; return it with them."""
        await self.finish(row, row.state, encode(result), not_before=row.not_before)
        return row.but(result=encode(result))

    async def unknown_look(self, row: OutboxRow) -> None:
        """A message is about to be edited. From now on nobody knows how it looks, until the answer is there: it can be lost,
        and by the next try what is to be shown may be what was recorded before."""
        result = result_of(row)
        if result.pop("look", None) is not None:
            await self.keep(row, result)

    async def finish(
        self,
        row: OutboxRow,
        state: Literal["pending", "sent", "failed"],
        result: bytes | None,
        *,
        not_before: str | None = None,
        items: Sequence[InboxItem] = (),
    ) -> None:
        """Record the result of an attempt, and its effects."""
        finish, now = self.writer.store.outbox.finish, self.now()
        await self.writer.call(
            finish, row.id, row.rev, now=now, state=state, result=result, not_before=not_before, items=items
        )


def later(error: Exception, seconds: Callable[[], float], doing: str) -> Exception:
    """Return the error to raise for a failed call that nobody sees: the row waits, unless Slack refuses for good."""
    fault = classify(error)
    if isinstance(fault, Permanent | AuthLost):
        return fault
    return Hold(fault.retry_after if isinstance(fault, RateLimited) else seconds(), f"{doing}: {fault}")


def position(posted: Posted) -> dict[str, Json]:
    """Return the stored form of a message's location."""
    return {"channel": posted.channel, "ts": posted.ts}


_BEFORE = 60.0
"""Seconds by which Slack's clock may be behind ours."""


def result_of(row: OutboxRow) -> dict[str, Json]:
    """Return the record of earlier attempts; empty if there is none."""
    return dict(decode(row.result)) if row.result is not None else {}


def posted_of(row: OutboxRow | None) -> Posted | None:
    """Return the location of a row's message, if known."""
    result = result_of(row) if row is not None else {}
    return Posted(result["channel"], result["ts"]) if "ts" in result else None


def opens(card: OutboxRow | None) -> str | None:
    """The question that is on a card: the only one with which its session opened."""
    found: str | None = None if card is None else result_of(card).get("opens")
    return found


def is_uncertain(row: OutboxRow) -> bool:
    """True if a request may have been carried out without our knowledge."""
    result = result_of(row)
    return row.attempts > 0 and "ts" not in result and result.get("attempt") != row.attempts


def refused_result(row: OutboxRow, why: str) -> dict[str, Json]:
    """The record of an attempt that is known to have had no effect: this one needs no looking up."""
    return {"refused": why, "attempt": row.attempts + 1}


@dataclass(eq=False, repr=False)
class Poster:
    """Posts messages so that each is there once."""

    ledger: Ledger
    calls: Calls
    _: KW_ONLY
    delays: Sequence[float] = LOOK_DELAYS
    backoff: Callable[[OutboxRow], float]

    def __post_init__(self) -> None:
        self.delays = sorted(self.delays)
        self._told = False
        self._waited_since: dict[tuple[int, int], float] = {}

    @property
    def first_look(self) -> float:
        """Seconds after a lost answer until the first look."""
        return self.delays[0] if self.delays else 0.0

    async def once(
        self, row: OutboxRow, place: Place, message: Rendered, *, broadcast: bool = False
    ) -> Posted:
        """Post the message, or adopt the copy that is there. Raises `Hold` and `SlackFault`. With `broadcast` a reply
        is shown in the channel too.

        A `SlackFault` that leaves here belongs to the request that posts, never to a look; but for `AuthLost`.
        """
        uncertain = is_uncertain(row)
        if uncertain:
            there = await self.adopt(row, place)
            if there is not None:
                return there
        async with self.calls.budget.reserved(POST, place.channel):
            await self.ledger.attempt(row)
            posted = await self.calls.post(place, message, broadcast=broadcast)
        await self.alone(row, place, posted)
        if uncertain:
            # What was missing at every look may still have appeared by now.
            found = await self._look(row, place)
            return await self._choose(row, found) if found else posted
        return posted

    async def adopt(self, row: OutboxRow, place: Place) -> Posted | None:
        """The message of an uncertain row if it is there; None when it is not and will not come any more.

        Raises `Hold` while it may still appear, and when Slack cannot be asked.
        """
        found = await self._look(row, place)
        if found:
            self._waited_since.pop((row.id, row.attempts), None)
            return await self._choose(row, found)
        # Seconds until the next look; 0 when it was looked for at the end of the last delay.
        since = timestamps.seconds_between(row.attempted_at or row.created_at, self.ledger.now())
        # The machine's clock may have been set back since: what was waited here counts in any case.
        steady = asyncio.get_running_loop().time()
        since = max(since, steady - self._waited_since.setdefault((row.id, row.attempts), steady))
        wait = next((delay - since for delay in self.delays if delay > since), 0.0)
        if wait == 0:
            del self._waited_since[row.id, row.attempts]
        if wait > 0:
            raise Hold(wait, f"{row.key} may still appear")
        return None

    async def alone(self, row: OutboxRow, place: Place, posted: Posted) -> None:
        """Neutralize a post made while this process may have been taken for dead, if another one has posted it too.
        Raises `FenceLost` then."""
        if permitted():
            return
        with under(FREE):
            found = await self._look(row, place)
            if len(found) > 1 and found[0] == posted:
                # Whoever posts after us looks again, and makes its own copy harmless: unless ours was not to be seen then.
                await asyncio.sleep(self.first_look)
                found = await self._look(row, place)
            if any(copy != posted for copy in found):
                log.warning(
                    "%s was posted by another process too; ours at %s is disarmed", row.key, posted.ts
                )
                await self._disarm(row, posted)
                raise FenceLost

    async def _look(self, row: OutboxRow, place: Place) -> list[Posted]:
        oldest = timestamps.from_text(row.created_at).timestamp() - _BEFORE
        try:
            return await self.calls.find(row.key, place, oldest)
        except Permanent as fault:
            if not self._told:
                self._told = True
                log.error(
                    "posted messages cannot be looked up (%s): after a lost answer a message may appear twice",
                    fault,
                )
            return []
        except SlackFault as fault:
            raise later(fault, partial(self.backoff, row), f"looking for {row.key}") from fault

    async def _choose(self, row: OutboxRow, found: list[Posted]) -> Posted:
        """The oldest copy counts; the others are made harmless, visibly."""
        first, *others = found
        for other in others:
            log.warning("%s was posted twice; the copy at %s is disarmed", row.key, other.ts)
            await self._disarm(row, other)
        return first

    async def _disarm(self, row: OutboxRow, copy: Posted) -> None:
        try:
            await self.calls.edit(copy, duplicate(row.key), metadata=True)
        except Permanent as fault:
            log.error("%s: the copy at %s could not be disarmed: %s", row.key, copy.ts, fault)
        except SlackFault as fault:
            raise later(fault, partial(self.backoff, row), f"disarming a copy of {row.key}") from fault
