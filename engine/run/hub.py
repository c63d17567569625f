"""Interface to one session: its status, its events, and the requests that it takes.

A hub is never authoritative: its answers come from the engine and from the store, before, while and after the session
runs in this process. Subscribers get events after they are durable. One hub belongs to one session; a session context
(with its abort controller) belongs to one execution of it, and a resume creates a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

from engine.decide.commands import Action, Answer
from engine.journal.events import Closure, Event, FlowPaused, FlowResumed
from engine.journal.fold import derive_state
from engine.journal.phases import Phase, Status
from engine.journal.snapshot import to_json
from engine.journal.state import State
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.errors import InvalidAnswer, PauseError, SessionError, UnknownSession
from engine.run.engine import Engine

EventHandler: TypeAlias = Callable[[dict[str, Json]], Any]
"""Gets an event as it goes over the wire. `flow:paused` has the session's id and its whole state beside its fields."""


class SessionContext(Struct):
    """One execution of a session. `abort_controller` is set when it is to stop, temporarily or for good."""

    session_id: str
    parent_session_id: str | None
    created_at: str
    abort_controller: asyncio.Event = field(default_factory=asyncio.Event)


class Hub:
    """One session of an engine. `actor` is the requester of all calls; the policy decides what they may do."""

    def __init__(self, engine: Engine, session_id: str, actor: Actor) -> None:
        self.engine = engine
        self.session_id = session_id
        self.actor = actor
        self._handlers: list[tuple[str, EventHandler]] = []
        self._context: SessionContext | None = None
        self._state = State()
        self._stop = engine.subscribe(self._heard)

    def close(self) -> None:
        """Unsubscribe from all events."""
        self._stop()

    # --- status ----------------------------------------------------------------------------------------------

    async def refresh(self) -> State:
        """Read where the session stands. Raises `UnknownSession`."""
        self._state = await self.engine.state(self.session_id)
        return self._state

    @property
    def status(self) -> Status:
        """`idle`, `running`, `paused`, `complete`, `failed` or `aborted`, as last heard or read."""
        return self._state.status

    @property
    def phase(self) -> Phase:
        """Return the phase of the session, as last heard or read."""
        return self._state.phase

    @property
    def context(self) -> SessionContext:
        """The execution in progress. Raises `SessionError` before the session was heard of or read."""
        if self._context is None:
            if not self._state.seq:
                raise SessionError(f"Session {self.session_id} was not read yet; await hub.refresh() first.")
            self._context = self._fresh_context()
        return self._context

    def get_abort_signal(self) -> asyncio.Event:
        """Set when the execution in progress is to stop."""
        return self.context.abort_controller

    # --- events ----------------------------------------------------------------------------------------------

    def subscribe(self, pattern: str, handler: EventHandler) -> Callable[[], None]:
        """Subscribe to events by pattern: `*` for all, `node:*` for types with that prefix, else one type; returns the
        unsubscribe function."""
        entry = (pattern, handler)
        self._handlers.append(entry)
        return lambda: self._handlers.remove(entry)

    def emit(self, event: dict[str, Json]) -> None:
        """Tell the subscribers of something; it is not journaled."""
        for pattern, handler in list(self._handlers):
            if pattern in ("*", event["type"]) or (
                pattern.endswith("*") and event["type"].startswith(pattern[:-1])
            ):
                handler(event)

    async def get_event_log(self) -> Sequence[Event]:
        """Return the verified journal. It is append-only: a session that has begun cannot clear it."""
        return await self.engine.journal(self.session_id)

    async def derive_state(self) -> State:
        """The fold over the whole journal; equals the state that is kept while the session runs."""
        return derive_state(await self.get_event_log())

    async def clear_event_log(self) -> None:
        """Allowed only before a start; raises `SessionError` afterwards, since a journal is never cut."""
        try:
            await self.engine.head(self.session_id)
        except UnknownSession:
            return
        raise SessionError(f"Session {self.session_id} has begun; its journal is append-only.")

    async def get_paused_session(self, session_id: str) -> dict[str, Json] | None:
        """The state (`SessionState`) of a session, this one or another, while it is paused; None otherwise. Raises
        `UnknownSession`."""
        state = await self.engine.state(session_id)
        return to_json(state) if state.status == "paused" else None

    # --- requests --------------------------------------------------------------------------------------------

    async def pause(self, reason: str | None = None) -> State:
        """Hold the session; see `Engine.pause`."""
        await self._signal("pause")
        return await self.engine.pause(self.session_id, actor=self.actor, reason=reason)

    async def abort(self, reason: str | None = None, *, resumable: bool = False) -> State:
        """End the session, or, with `resumable`, hold it."""
        if resumable:
            return await self.pause(reason)
        await self._signal("cancel")
        return await self.engine.abort(self.session_id, actor=self.actor, reason=reason)

    async def resume(
        self, session_id: str, message: str, *, prompt_id: str | None = None, answer: Json = None
    ) -> State:
        """Continue a session, this one or another, with a message, or with the answer to one of its questions, of which the
        message is the reason; see `Engine.resume`."""
        if prompt_id is None and answer is not None:
            raise InvalidAnswer("An answer needs the id of its question (prompt_id). Nothing was changed.")
        if prompt_id is None:
            return await self.engine.resume(session_id, message, actor=self.actor)
        said = {"text": message} if answer is None else {"value": answer, "reason": message or None}
        key = f"resume:{self.engine.new_id()}"
        return await self.engine.resume(session_id, Answer(prompt_id, self.actor, key, **said))

    async def send(self, session_id: str, message: str) -> None:
        """Steer a session on its way, this one or another; see `Engine.send`."""
        await self.engine.send(session_id, message, actor=self.actor)

    def checkpoint(self) -> None:
        """Leave here if the current execution is to stop, by raising `PauseError` with the session's state
        (`SessionState`); else do nothing."""
        if self.get_abort_signal().is_set():
            raise PauseError(state=to_json(self._state))

    # --- inside ----------------------------------------------------------------------------------------------

    async def _signal(self, action: Action) -> None:
        """Set the abort signal, unless the engine is about to refuse."""
        if (
            self._context is not None
            and await self.engine.refusal(self.session_id, action, self.actor) is None
        ):
            self._context.abort_controller.set()

    def _fresh_context(self) -> SessionContext:
        state = self._state
        return SessionContext(self.session_id, state.parent_session_id, state.created_at)

    def _heard(self, state: State, events: Sequence[Event]) -> None:
        if state.session_id != self.session_id:
            return
        self._state = state
        for event in events:
            if isinstance(event, FlowResumed) or self._context is None:
                self._context = self._fresh_context()
            if isinstance(event, Closure) or (isinstance(event, FlowPaused) and event.held):
                # Whoever requested it: another hub, a person in the thread, another process.
                self._context.abort_controller.set()
            wire = event.to_wire()
            if isinstance(event, FlowPaused):
                wire |= {"sessionId": self.session_id, "state": to_json(state)}
            self.emit(wire)
