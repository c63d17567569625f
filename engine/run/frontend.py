"""Frontends: the interface that shows questions and messages of sessions to people, the loop that calls one, and the
choice of the runtime that does so for a database: the one with the lease to serve it.

Each question or message is an intent, an outbox row in the commit of its step. Each row is handed to the frontend at
least once, rows of one session in order; the result goes back through the inbox. A crash between the two hands the row
over again, with the same key.

A runtime with a frontend keeps the lease while it is open, and waits for another server to end. One without a frontend
has it for single rounds, as a holder that is stopping: a server that starts meanwhile waits for it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from engine.decide.projections import lane
from engine.journal.events import Event, PromptEvent, Start
from engine.journal.records import InboxItem, OutboxRow, PutOutbox, Row
from engine.journal.state import Asked, State
from engine.language import timestamps
from engine.language.codec import Json, copy, decode, encode
from engine.language.errors import (
    Corrupt,
    NotJson,
    SaysoError,
    SchemaTooNew,
    SessionQuarantined,
    StorageBroken,
    StorageError,
    UnknownSession,
)
from engine.nodes.runtime.effects import before_effect, unless_lost
from engine.nodes.types.registry import mode_of
from engine.run import remote_commands
from engine.run.engine import Engine
from engine.run.supervision import wait_at_most
from engine.storage.fence import WorkPermit
from engine.storage.leases import Holder, Serving
from engine.storage.store import Store

log = logging.getLogger("sayso.frontend")


MOST_ATTEMPTS = 5
"""Tries of a message before its node fails. A question is tried for as long as it is open."""

BACKOFF_SECONDS = (0.5, 30.0)
"""First and longest wait in seconds after a frontend raised, doubling in between."""

_POLL_SECONDS = 0.5
_LOST = (Corrupt, SchemaTooNew, SessionQuarantined, UnknownSession)


class Message(Struct, frozen=True):
    """Content of a `message` node. `config` is the whole: text, table, files."""

    session_id: str
    path: str
    text: str
    config: dict[str, Json]

    @classmethod
    def of(cls, session_id: str, path: str, config: Json) -> Message:
        """The message of a node with this config."""
        whole = config if isinstance(config, dict) else {}
        return cls(session_id, path, str(whole.get("text") or ""), whole)


class NotDelivered(SaysoError):
    """A frontend cannot deliver a message, nor will it later: its node fails with these words."""

    code = "not_delivered"


class Frontend(Protocol):
    """Shows sessions to people. What it raises is logged and tried again, except for `NotDelivered`."""

    async def ask(self, state: State, asked: Asked, key: str) -> dict[str, Json]:
        """Show an open question and return its place. Called at least once: a repetition has the same `key`. The clocks
        of the question run from here on."""

    async def close(self, state: State, asked: Asked) -> None:
        """Close a question that was answered, expired or cancelled."""

    async def deliver(self, message: Message, key: str) -> dict[str, Json]:
        """Show a message and give the output of its node. At least once, as `ask`."""

    def observe(self, state: State, events: Sequence[Event]) -> None:
        """Told of committed events while the process lives; not told again after a crash."""


UNSEEN: dict[str, Json] = {"runtime": True}
"""Place of a question that waits to be read from its session."""


class NoFrontend(Frontend):
    """Shows nothing: questions wait to be read from their session (`Session.questions`); messages fail, as nobody would
    see them."""

    async def ask(self, state: State, asked: Asked, key: str) -> dict[str, Json]:
        """See `Frontend.ask`."""
        return UNSEEN

    async def close(self, state: State, asked: Asked) -> None:
        """See `Frontend.close`."""

    async def deliver(self, message: Message, key: str) -> dict[str, Json]:
        """See `Frontend.deliver`."""
        raise NotDelivered(
            "There is nothing to deliver messages with: give the Runtime a frontend (frontend=...)."
        )

    def observe(self, state: State, events: Sequence[Event]) -> None:
        """See `Frontend.observe`."""


def question_rows(before: State, after: State, events: Sequence[Event]) -> Sequence[Row]:
    """Return an intent for each question that is to be shown, or shown again, and for each shown one that was closed."""
    if before.prompts is after.prompts:
        return ()
    rows = []
    for prompt_id, asked in after.prompts.items():
        was = before.prompts.get(prompt_id)
        if asked.open and asked.shown is None:
            rows.append(_row(after, asked, "ask"))
        elif not asked.open and was is not None and was.open and asked.shown != UNSEEN:
            rows.append(_row(after, asked, "close"))
    return rows


def may_have_rows(state: State, events: Sequence[Event]) -> bool:
    """True if a commit with these events may have made an intent for a frontend."""
    if state.ended and any(asked.shown != UNSEEN for asked in state.prompts.values()):
        return True
    return any(
        _is_shown(state, event.prompt_id)
        if isinstance(event, PromptEvent)
        else isinstance(event, Start) and mode_of(event.node_type) == "delivery"
        for event in events
    )


def _is_shown(state: State, prompt_id: str) -> bool:
    asked = state.prompts.get(prompt_id)
    return asked is None or asked.shown != UNSEEN


def _row(state: State, asked: Asked, kind: str) -> PutOutbox:
    """The intent; a second one for the same copy of a question is a no-op."""
    payload = encode({"promptId": asked.prompt_id})
    key = f"{kind}:{asked.prompt_id}~{asked.generation}"
    return PutOutbox(key=key, lane=lane(state), kind=kind, payload=payload, session_id=state.session_id)


class FrontendWorker:
    """Hands the outbox rows of a store to a frontend. `ingested` is called when something was put into the inbox."""

    def __init__(
        self, engine: Engine, frontend: Frontend, lock: FrontendLock, ingested: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._frontend = frontend
        self._lock = lock
        self._ingested = ingested
        self._wake = asyncio.Event()
        self._kinds = {"ask": self._ask, "close": self._close, "message": self._deliver}

    def notify(self) -> None:
        """There may be new rows."""
        self._wake.set()

    async def run(self) -> None:
        """Work until cancelled. Raises fatal errors (a broken disk)."""
        lanes: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                self._wake.clear()
                await self._round(lanes)
                await wait_at_most(_POLL_SECONDS, self._wake)
        finally:
            for task in lanes.values():
                task.cancel()
            await asyncio.gather(*lanes.values(), return_exceptions=True)
            self._lock.close()

    async def _round(self, lanes: dict[str, asyncio.Task[None]]) -> None:
        """Start a task for each lane that has rows and no task. A lane that ends while rows are read is left to the
        next round, as some of them may be done by then."""
        try:
            for key in [name for name, task in lanes.items() if task.done()]:
                lanes.pop(key).result()
            if not self._lock.take():
                return
            permit = WorkPermit(self._engine.store, self._engine.store.generation())
            rows = await self._engine.writer.call(self._engine.store.outbox.due, now=self._engine.now())
        except StorageBroken:
            raise
        except StorageError as error:
            log.error("%s; trying again", error)
            return
        found: dict[str, list[OutboxRow]] = {}
        for row in rows:
            if row.kind in self._kinds and row.lane not in lanes:
                found.setdefault(row.lane, []).append(row)
        for key, each in found.items():
            lanes[key] = asyncio.create_task(
                unless_lost(self._in_order(each), permit), name=f"frontend:{key}"
            )
            lanes[key].add_done_callback(lambda _: self._wake.set())
        if not lanes:
            self._lock.pause()

    async def _in_order(self, rows: Sequence[OutboxRow]) -> None:
        for row in rows:
            if not await self._handle(row):
                return

    async def _handle(self, row: OutboxRow) -> bool:
        """True if the row is done; if its frontend raised, it waits, and so do the rows behind it."""
        call, store = self._engine.writer.call, self._engine.store
        if not await call(store.outbox.attempt, row.id, row.attempts, self._engine.now()):
            return False
        try:
            items = await self._kinds[row.kind](row)
        except NotDelivered as error:
            items = [self._undelivered(row, str(error))]
        except _LOST as error:
            log.error("%s is not shown because its session cannot be read: %s", row.key, error)
            await call(store.outbox.finish, row.id, row.rev, now=self._engine.now(), state="failed")
            return True
        except StorageError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _cancelled():
                raise
            log.warning("%s is retried: %s: %s", row.key, type(error).__name__, error)
            if row.kind == "ask" or row.attempts + 1 < MOST_ATTEMPTS:
                first, most = BACKOFF_SECONDS
                now = self._engine.now()
                later = timestamps.after(now, min(most, first * 2.0 ** min(row.attempts, 10)))
                await call(store.outbox.finish, row.id, row.rev, now=now, state="pending", not_before=later)
                return False
            log.error("gave up on %s after %d attempts", row.key, MOST_ATTEMPTS, exc_info=error)
            text = f"The message could not be delivered: {type(error).__name__}: {error}"
            items = [self._undelivered(row, text)] if row.kind == "message" else []
        await call(store.outbox.finish, row.id, row.rev, now=self._engine.now(), state="sent", items=items)
        if items:
            self._ingested()
        return True

    async def _ask(self, row: OutboxRow) -> list[InboxItem]:
        state, asked = await self._question(row)
        if asked is None or not asked.open or asked.shown is not None:
            return []
        shown = await _awaited("ask", self._frontend.ask, state, asked, row.key)
        if not isinstance(shown, dict) or not _is_json(shown):
            log.error("`ask` of the frontend must return a JSON object; the question counts as shown.")
            shown = {}
        return [self._request(row, "shown", promptId=asked.prompt_id, shown=shown)]

    async def _close(self, row: OutboxRow) -> list[InboxItem]:
        state, asked = await self._question(row)
        if asked is not None and not asked.open:
            await _awaited("close", self._frontend.close, state, asked)
        return []

    async def _question(self, row: OutboxRow) -> tuple[State, Asked | None]:
        state = await self._engine.verified_state(row.session_id or "")
        return state, state.prompts.get(decode(row.payload)["promptId"])

    async def _deliver(self, row: OutboxRow) -> list[InboxItem]:
        data = decode(row.payload)
        message = Message.of(data["sessionId"], data["path"], data["config"])
        output = await _awaited("deliver", self._frontend.deliver, message, row.key)
        if not _is_json(output):
            raise NotDelivered("The message was shown, but `deliver` of the frontend must return JSON.")
        place = {"path": data["path"], "attempt": data["attempt"]}
        return [self._request(row, "delivered", **place, output=output)]

    def _undelivered(self, row: OutboxRow, text: str) -> InboxItem:
        data = decode(row.payload)
        error = {"type": "frontend", "message": text}
        return self._request(row, "undelivered", path=data["path"], attempt=data["attempt"], error=error)

    def _request(self, row: OutboxRow, do: str, **fields: Json) -> InboxItem:
        return remote_commands.item(f"{do}:{row.key}", row.session_id or "", do, **fields)


def _cancelled() -> bool:
    """True if the worker itself is being cancelled, not something within the frontend."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _awaited(name: str, method: Callable[..., Awaitable[Json]], *given: object) -> Json:
    """Return the result of a frontend's method. One that is not `async` has done its work by now: calling it again
    would do it twice."""
    await before_effect()
    made = method(*given)
    if inspect.isawaitable(made):
        return await made
    log.error("`%s` of the frontend must be an `async def`: it blocks all sessions while it runs.", name)
    return made


def _is_json(value: Json) -> bool:
    try:
        copy(value)
    except NotJson:
        return False
    return True


# --- the lease to serve ------------------------------------------------------------------------------------


class FrontendLock:
    """The lease to serve a store."""

    def __init__(self, store: Store, holder: Holder, *, keeps: bool) -> None:
        """`keeps`: it is held until `close`, else until `pause`."""
        self._store = store
        self._holder = replace(holder, stopping=not keeps)
        self._keeps = keeps
        self._lease: Serving | None = None
        self._held = False
        self._told = False

    def take(self) -> bool:
        """True if the lease is ours now. Raises `StorageError` for a file that is not ours alone."""
        if self._held:
            return True
        if self._lease is None:
            self._lease = self._store.try_serving(self._holder)
            self._held = self._lease is not None
        else:
            self._held = self._lease.retake()
        if not self._held and self._keeps and not self._told:
            self._told = True
            log.warning(
                "%s Until then this runtime shows nothing.",
                self._store.served(),
            )
        return self._held

    def pause(self) -> None:
        """Let another runtime have the lease while there is no work, unless it is kept."""
        if self._held and self._lease is not None and not self._keeps:
            self._lease.release()
            self._held = False

    def close(self) -> None:
        """Give it back."""
        if self._lease is not None:
            self._lease.close()
            self._lease, self._held = None, False
