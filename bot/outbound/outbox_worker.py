"""The loop of the outbox: reads what is to be sent, gives each lane one row at a time, and records the outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from typing import Literal

from bot.config.session_files import SessionFiles
from bot.config.tuning import SLACK_PACE, Tuning
from bot.intents.slots import CARD, SPEECH
from bot.outbound.agent_messages import Pieces
from bot.outbound.calls import Calls, Hold
from bot.outbound.deliveries import Deliveries, Uploads
from bot.outbound.destinations import Names, Places, Reachability, Speakers
from bot.outbound.notices import Clocks
from bot.outbound.posts import (
    DROPPED,
    Failed,
    Ledger,
    Outcome,
    Poster,
    Sent,
    Sessions,
    posted_of,
    refused_result,
)
from bot.outbound.reactions import DROP_SECONDS, Reactions, is_first
from bot.outbound.senders import Rows
from bot.outbound.slots import Slots
from bot.outbound.streams import Streams
from bot.outbound.turns import (
    channel_of,
    in_thread,
    is_edit,
    lane_of,
    method_of,
    repeatable,
    slot_of,
    urgency_of,
)
from bot.wire.budget import Urgency, urgency
from bot.wire.client import AuthLost, BudgetedClient, NotSent, Permanent, RateLimited, SlackFault
from engine.flow import Flow
from engine.journal.events import Event
from engine.journal.records import InboxItem, OutboxRow
from engine.journal.state import State
from engine.language import timestamps as moments
from engine.language.codec import Json, encode
from engine.language.errors import (
    Corrupt,
    FenceLost,
    MalformedJournal,
    SchemaTooNew,
    SessionQuarantined,
    StorageBroken,
    StorageError,
    UnknownSession,
)
from engine.nodes.runtime.effects import under
from engine.nodes.types.spec import Meter
from engine.run.stored import utc_now
from engine.run.supervision import wait_at_most
from engine.storage.fence import WorkPermit
from engine.storage.group_commit import Writer

log = logging.getLogger("sayso.outbound")

_PAGE = 100
_MOST_ROWS = 6_400
_SHORTEST_HOLD = 0.001
_EVER = "9999-12-31T00:00:00.000Z"
_LOST = (UnknownSession, Corrupt, MalformedJournal, SessionQuarantined)
_FRESH_SECONDS = 0.1
"""A row that waited longer for its turn is read again: it may have been replaced."""
_TROUBLE_SECONDS = 1.0
"""After how long the outbox is read again that could not be read."""
_NEWER_SECONDS = 3600.0
"""Seconds before another look at a row of a newer release, and at those behind it in its lane."""


async def _always() -> bool:
    """Return True: a single process is always the sender."""
    return True


class Outbound:
    """Sends the rows of a store's outbox to Slack. Construct it on the running event loop.

    `load_state` and `load_flow` give a session's state and pinned flow. `taken` is called when inbox items were stored
    that follow from what was sent (a prompt is shown, a message delivered). `now` is the time as it is stored.
    `files` are the folders of sessions, out of which messages take files; `meters` says how far running nodes are, `lacks` what is missing here for a flow.
    `posting` is around each request that posts a message, which then comes back as an event.
    `agent` is whether the app is an agent of Slack's, `room` the address of the control room.
    `sends` says whether this process is the one that sends, and `still` asks the store. `link_hosts` are the hosts whose links a model may show. `failure` is done with the reason once nothing can be sent
    any more; `run()` raises it too.
    """

    def __init__(
        self,
        writer: Writer,
        client: BudgetedClient,
        load_state: Callable[[str], Awaitable[State]],
        load_flow: Callable[[str], Awaitable[Flow]],
        bot_user_id: str,
        *,
        taken: Callable[[], None] = lambda: None,
        now: Callable[[], str] = utc_now,
        tuning: Tuning = SLACK_PACE,
        files: SessionFiles | None = None,
        meters: Callable[[str], Mapping[str, Meter]] = lambda session_id: {},
        lacks: Callable[[Flow], Awaitable[Sequence[str]]] | None = None,
        posting: Callable[[], AbstractContextManager[None]] = nullcontext,
        link_hosts: frozenset[str] = frozenset(),
        agent: bool = False,
        room: str | None = None,
        sends: Callable[[], bool] = lambda: True,
        still: Callable[[], Awaitable[bool]] = _always,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[None] = loop.create_future()
        self._clock = loop.time
        self._writer = writer
        self._taken = taken
        self._now = now
        self._tuning = tuning
        self._still = still
        self._generation = -1
        """The generation under which this process was known to be the one that sends."""
        self._lanes: dict[str, tuple[OutboxRow, asyncio.Task[None], Urgency]] = {}
        self._without_turn: set[asyncio.Task[None]] = set()
        self._holds: dict[str, float] = {}
        self._troubles: dict[str, int] = {}
        self._newer: set[str] = set()
        self._cards: set[str] = set()
        self._limit = _PAGE
        self._wake = asyncio.Event()
        self._stopping = False
        self._budget = client.budget
        sessions = Sessions(load_state, load_flow, meters, lacks)
        self._ledger = ledger = Ledger(writer, now)
        calls = Calls(client, bot_user_id, posting, ledger.note)
        delays = tuning.look_delays
        self._poster = Poster(ledger, calls, delays=delays, backoff=self._again_in)
        self._reach = Reachability(ledger, sessions)
        clock, speakers = self._clock, Speakers(sessions)
        self._pieces = Pieces(ledger, calls, self._poster, clock=clock, speakers=speakers, hosts=link_hosts)
        self.streams = Streams(ledger, self._pieces, sessions, told=self.notify, sends=sends)
        names, places = Names(client, clock), Places(client, clock)
        common = (ledger, calls, self._poster, places, names, sessions)
        uploads = Uploads(ledger, client, files=files, delays=delays, backoff=self._again_in)
        kinds = Deliveries(*common, uploads).kinds() | Clocks(*common).kinds()
        kinds |= Reactions(*common).kinds() | Slots(*common, self._pieces, agent, room).kinds()
        self._rows = Rows(*common, bot_user_id, kinds)

    # --- life ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send until `stop()`. Raises `AuthLost` when the token is not accepted any more, and `StorageBroken`."""
        try:
            while not self._stopping and not self.failure.done():
                try:
                    await wait_at_most(await self._look(), self._wake)
                finally:
                    self._wake.clear()
        finally:
            for task in self._without_turn:
                task.cancel()
            tasks = [task for _, task, _ in self._lanes.values()]
            if tasks:
                await asyncio.wait(tasks, timeout=5)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self.failure.done():
            self.failure.result()

    def said(self, thread_key: str, ts: str) -> None:
        """Somebody said something in a thread: what agents say from now on is below it."""
        self._pieces.below(thread_key, ts)

    def happened(self, state: State, events: Sequence[Event]) -> None:
        """A session took a step."""
        self.notify()

    def notify(self) -> None:
        """There may be something to send."""
        self._wake.set()

    def stop(self) -> None:
        """Send nothing more; `run()` returns once the requests that are out have their answers."""
        self._stopping = True
        self.streams.stop()
        self._wake.set()

    # --- lanes ---------------------------------------------------------------------------------------------

    async def _look(self) -> float:
        """Give every free lane its oldest row; seconds until it is worth looking again.

        A lane is free only from here on: a row that was read while its lane was busy may be done by now.
        """
        for lane in [lane for lane, (_, task, _) in self._lanes.items() if task.done()]:
            del self._lanes[lane]
        try:
            generation = self._writer.store.generation()
            if generation != self._generation and not await self._still():
                return self._tuning.poll_seconds
            self._generation = generation
            rows = await self._writer.call(self._writer.store.outbox.due, now=self._now(), limit=self._limit)
            await self._forget_cards({row.lane for row in rows})
        except StorageBroken:
            raise
        except StorageError as error:
            log.error("the outbox could not be read: %s", error)
            return min(self._tuning.poll_seconds, _TROUBLE_SECONDS)
        if not self._stopping:
            with under(WorkPermit(self._writer.store, generation)):
                self._give(rows)
        # Look further when a page is full: rows that wait must not hide those behind them.
        if len(rows) < self._limit:
            self._limit = max(_PAGE, self._limit // 2) if len(rows) < self._limit // 2 else self._limit
        elif self._limit < _MOST_ROWS:
            self._limit *= 2
            self._wake.set()
        soonest = min(self._holds.values(), default=self._clock() + self._tuning.poll_seconds) - self._clock()
        return max(_SHORTEST_HOLD, min(soonest, self._tuning.poll_seconds))

    async def _forget_cards(self, found: Set[str]) -> None:
        """A card waited, and nothing is to be sent of it any more: the process that was here before may have posted it."""
        now = self._clock()
        for lane in self._cards - found - set(self._lanes):
            if self._holds.get(lane, 0.0) <= now:
                row = await self._ledger.row(lane)
                if row is None or row.state != "pending":
                    self._cards.discard(lane)

    def _give(self, rows: Sequence[OutboxRow]) -> None:
        now, passed = self._clock(), set(self._lanes)
        self._holds = {lane: until for lane, until in self._holds.items() if until > now}
        urgent: dict[str, Urgency] = {}
        for row in rows:
            # Whatever waits behind something less urgent makes that as urgent as it is itself.
            lane = lane_of(row)
            urgent[lane] = min(urgent.get(lane, Urgency.MARK), urgency_of(row))
        for lane, (_, task, given) in self._lanes.items():
            if urgent.get(lane, given) < given and task in self._without_turn:
                # It waits less urgently than what has come since: the lane is given out again.
                task.cancel()
        for row in sorted(rows, key=_order):
            lane = lane_of(row)
            if lane in passed:
                continue
            passed.add(lane)
            if lane not in self._holds and not self._card_first(row):
                task = asyncio.create_task(self._work(row, urgent[lane]), name=f"outbox:{row.key}")
                task.add_done_callback(lambda _: self._wake.set())
                self._lanes[lane] = (row, task, urgent[lane])

    def _card_first(self, row: OutboxRow) -> bool:
        """True if a row waits for its session's card, which is being posted or waits to be: it is above everything else."""
        if is_edit(row):
            return False
        ahead = self._lanes.get(f"card:{row.session_id}")
        if ahead is None:
            waits = f"card:{row.session_id}" in self._cards and slot_of(row) != CARD
            return waits and (row.kind == "note" or in_thread(row))
        return posted_of(ahead[0]) is None

    def _hold(self, lane: str, seconds: float) -> None:
        # A time that is too short for the clock would be none: the row would be given out again in the same moment.
        self._holds[lane] = self._clock() + max(seconds, _SHORTEST_HOLD)

    def _hold_row(self, row: OutboxRow, seconds: float) -> None:
        """The row has to wait, and with it what follows it."""
        self._hold(lane_of(row), seconds)
        if slot_of(row) == CARD and posted_of(row) is None:
            self._cards.add(row.lane)

    def _again_in(self, row: OutboxRow) -> float:
        """Seconds to wait after an error that will pass: longer each time, and never the same for many rows."""
        times = self._troubles[row.key] = self._troubles.get(row.key, 0) + 1
        first, most = self._tuning.backoff
        return float(min(most, first * 2 ** min(times - 1, 20)) * (0.5 + self._tuning.jitter() / 2))

    # --- one row -------------------------------------------------------------------------------------------

    async def _work(self, row: OutboxRow, how_urgent: Urgency) -> None:
        """Wait for a turn → send → record. Whatever happens, the row is recorded, or stays as it is and its lane waits."""
        try:
            with urgency(how_urgent):
                await self._in_turn(row)
        except Hold as hold:
            log.debug("%s: %s", row.key, hold)
            self._hold_row(row, hold.seconds)
        except (AuthLost, StorageBroken) as error:
            if not self.failure.done():
                log.critical("nothing more can be sent: %s", error)
                self.failure.set_exception(error)
            self._wake.set()
        except FenceLost:
            log.info("%s is skipped: another process may send it", row.key)
            self._hold_row(row, self._again_in(row))
        except Exception:
            # A fault of ours in one row, which must not keep the others back: its lane waits, longer each time.
            log.exception("%s could not be sent and is tried again", row.key)
            self._hold(lane_of(row), self._again_in(row))

    async def _in_turn(self, row: OutboxRow) -> None:
        """Send a row in its turn, as it is by then."""
        method = method_of(row)
        if method is None:
            await self._send(row)
            return
        task, since = asyncio.current_task(), self._clock()
        assert task is not None
        async with AsyncExitStack() as turn:
            self._without_turn.add(task)
            try:
                if slot_of(row) == CARD and urgency_of(row) is Urgency.PROGRESS:
                    await asyncio.sleep(self._tuning.card_seconds)
                if is_first(row):
                    await asyncio.sleep(self._tuning.mark_seconds)
                async with asyncio.timeout(DROP_SECONDS if is_first(row) else None):
                    await turn.enter_async_context(self._budget.reserved(method, await self._channel(row)))
            except TimeoutError:
                await self._record(row, Sent(DROPPED))
                return
            finally:
                self._without_turn.discard(task)
            now = row if self._clock() - since < _FRESH_SECONDS else await self._ledger.row(row.key)
            if now is not None and now.state == "pending" and not self._stopping:
                lock = self._pieces.lock(row.lane) if slot_of(row) == SPEECH else asyncio.Lock()
                async with lock:
                    await self._send(now)

    async def _channel(self, row: OutboxRow) -> str:
        """The channel that a row goes to; a card's is that of its session."""
        head = None if slot_of(row) != CARD else await self._ledger.head(row.session_id or "")
        return channel_of(row) if head is None else (head.thread_key or "").split(":")[1]

    async def _send(self, row: OutboxRow) -> None:
        try:
            outcome = await self._rows.send(row)
        except AuthLost:
            raise
        except SlackFault as fault:
            # What becomes of a row whose request did not succeed.
            match fault:
                case Permanent() if (lost := await self._reach.lost(row, fault)) is not None:
                    log.warning("%s waits until the bot can post in its thread: %s", row.key, fault)
                    await self._postpone(row, str(fault), self._tuning.unreachable_seconds, lost)
                case Permanent():
                    log.error("%s: %s", row.key, fault)
                    await self._record(row, self._rows.refused(row, fault.reason, str(fault)))
                case RateLimited():
                    # Its next turn comes when Slack takes some again: the budget knows when, and says so in the log.
                    await self._not_taken(row, fault, 0.0)
                case NotSent():
                    log.warning("%s: %s", row.key, fault)
                    await self._not_taken(row, fault, self._again_in(row))
                case _:
                    log.warning("%s: %s", row.key, fault)
                    await self._ingest(self._reach.unshown(row, self._now()))
                    self._hold_row(row, self._again_in(row) if repeatable(row) else self._poster.first_look)
            return
        except SchemaTooNew as error:
            if row.key not in self._newer:
                log.warning("%s is left for a newer release: %s", row.key, error)
            self._newer.add(row.key)
            self._hold_row(row, _NEWER_SECONDS)
            return
        except _LOST as error:
            log.error("%s cannot be sent because its session cannot be read: %s", row.key, error)
            outcome = Failed({"error": error.code, "message": str(error)})
        await self._record(row, outcome)

    async def _ingest(self, items: Sequence[InboxItem]) -> None:
        if items:
            await self._writer.call(self._writer.store.inbox.ingest, items, self._now())
            self._taken()

    async def _not_taken(self, row: OutboxRow, fault: SlackFault, seconds: float) -> None:
        """Nothing was sent. Of what is posted that is recorded, so that it needs no looking up."""
        items = self._reach.unshown(row, self._now())
        if repeatable(row):
            await self._ingest(items)
        else:
            await self._postpone(row, str(fault), None, items)
        self._hold_row(row, seconds)

    async def _postpone(
        self, row: OutboxRow, why: str, seconds: float | None, items: Sequence[InboxItem] = ()
    ) -> None:
        """Record that nothing was sent; with `seconds` also that it is not tried before, by whatever process."""
        result = None if posted_of(row) is not None else encode(refused_result(row, why))
        not_before = None if seconds is None else moments.after(self._now(), seconds)
        await self._ledger.finish(row, "pending", result, not_before=not_before, items=items)
        if seconds is not None:
            # Others may find out sooner that it can be sent (`hurry`): the row says when, this only keeps its lane in order.
            self._hold_row(
                row, seconds if not self._writer.store.shared else min(seconds, self._tuning.poll_seconds)
            )
        if items:
            self._taken()

    async def hurry(self, channel: str) -> None:
        """A channel can be posted in again, as it seems: what waits for that is tried at once."""
        rows = await self._writer.call(self._writer.store.outbox.due, now=_EVER, limit=_MOST_ROWS)
        for row in await self._reach.waiting_in(channel, rows):
            if row.not_before is not None:
                await self._ledger.finish(row, "pending", row.result)
            self._holds.pop(lane_of(row), None)
        self.notify()

    async def _record(self, row: OutboxRow, outcome: Outcome) -> None:
        self._troubles.pop(row.key, None)
        self._cards.discard(row.lane)
        result: dict[str, Json] = outcome.result
        if slot_of(row) != SPEECH and not repeatable(row) and (result.get("ts") or result.get("fileTs")):
            self._pieces.below(row.lane, result.get("ts") or result["fileTs"])
        items = [*outcome.items, *await self._reach.regained(row, outcome)]
        state: Literal["sent", "failed"] = "sent" if isinstance(outcome, Sent) else "failed"
        await self._ledger.finish(row, state, encode(result), items=items)
        if items:
            self._taken()


def _order(row: OutboxRow) -> tuple[bool, int]:
    """A session's card is posted before what follows it in the thread. Of the changes of one message the most urgent goes
    first. The order is otherwise kept."""
    new_card = slot_of(row) == CARD and posted_of(row) is None
    return not new_card, urgency_of(row) if is_edit(row) else 0
