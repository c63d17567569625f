"""One session of a runtime: its state, its questions, and the requests that it takes.

A request is carried out in this process, in one step: it is durable when `act` returns, and if the process is killed
before that, all of it is stored or nothing. If another process has the session, if other requests come first, or if it
may take longer (a pause), it goes through the inbox: there it is durable once it is in, and `act` waits until it was
carried out or refused. It survives the death of this process: the next one that serves the session carries it out once
(it is consumed in the commit of the step that it causes), or refuses it if another request was faster.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from msgspec import Struct

from engine.decide.commands import Command
from engine.forms import match_option
from engine.journal.phases import Status
from engine.journal.queries import asked_in_order
from engine.journal.records import Consumed, InboxItem, InboxRow
from engine.journal.state import Asked, State
from engine.language.actors import Actor
from engine.language.codec import Json, decode
from engine.language.errors import (
    Fenced,
    Owned,
    SaysoError,
    SessionError,
    SeveralPrompts,
    StorageError,
)
from engine.run import remote_commands
from engine.run.dispatcher import perform
from engine.run.engine import Engine
from engine.storage.group_commit import Writer
from engine.storage.store import Store

REPLY_SECONDS = 30.0
"""Seconds that a living process has to carry out a request."""

OWNED_SECONDS = 15.0
"""Seconds to wait for the session's owner before a request is not carried out here."""

NewsWait: TypeAlias = Callable[[float], Awaitable[None]]
"""Waits for news, up to so many seconds."""

_LOOK_SECONDS = 0.05
_LONGER = ("pause", "migrate")
"""Requests that take more than a step."""

_UNSEEN_SECONDS = 5.0


class RequestRefused(SaysoError):
    """A request was refused; carries the error code and the sentence."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)

    @classmethod
    def of(cls, row: InboxRow, otherwise: str | None = None) -> RequestRefused:
        """Return the refusal of a finished request; `otherwise` is its sentence if the row has none."""
        result = decode(row.result) if row.result else {}
        message = result.get("message") or otherwise or f"The request was not carried out ({row.outcome})."
        return cls(str(result.get("error") or "refused"), str(message))


class Receipt(Struct, frozen=True):
    """Result of a request: `applied`, or `queued` until a process that serves the session carries it out."""

    key: str
    outcome: str
    there: bool = True
    """True if such a process is alive."""


async def receipt_of(
    writer: Writer,
    key: str,
    *,
    seconds: float = REPLY_SECONDS,
    served: Callable[[], bool] | None = None,
    news: Callable[[], NewsWait] = lambda: asyncio.sleep,
    here: Callable[[InboxRow], Awaitable[None]] | None = None,
) -> Receipt:
    """Wait so many seconds for the request with this key to be carried out, while its session is `served`, if that is
    given; or carry it out `here`, unless another process was faster to claim the session: then wait for that one.
    `news` returns a function that waits until it is time to look again.

    Raises `RequestRefused`, the errors of `here`, and storage errors.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        look = news()
        # Asked before the row is read: a process that took the request and ended is seen to have taken it.
        there = served is None or await writer.call(served)
        row = await writer.call(writer.store.inbox.row, key)
        assert row is not None, "a request stays in the inbox until it is done"
        if row.outcome is not None:
            if row.outcome != "applied":
                raise RequestRefused.of(row)
            return Receipt(key, row.outcome)
        if here is None:
            if not there or loop.time() >= deadline:
                return Receipt(key, "queued", there)
        else:
            try:
                await here(row)
                continue
            except (Owned, Fenced):
                if loop.time() >= deadline:
                    raise
        await look(_LOOK_SECONDS)


async def carry_out(engine: Engine, request: InboxItem) -> None:
    """Carry a request out in this process; see `receipt_of`. Where that fails, or is cancelled, it is withdrawn."""
    try:
        await engine.writer.ingest([request], engine.now())
        await receipt_of(engine.writer, request.key, seconds=OWNED_SECONDS, here=partial(perform, engine))
    except BaseException:
        with contextlib.suppress(StorageError):
            await engine.writer.call(withdraw, engine.store, request.key, engine.now())
        raise


def withdraw(store: Store, key: str, now: str) -> None:
    """Withdraw a request that was not carried out: its author is told that nothing was done."""
    row = store.inbox.row(key)
    if row is not None and row.outcome is None:
        store.consume([Consumed(row.id, "withdrawn")], now)


class Session:
    """A session and its state as last read; `refresh`, `rest` and requests read it again."""

    def __init__(
        self,
        engine: Engine,
        state: State,
        notify: Callable[[], None],
        news: Callable[[str], NewsWait],
        at_once: Callable[[str, Command], Awaitable[State | None]],
    ) -> None:
        """`notify` wakes the reader of the inbox; `news` returns a function that waits for the session's next news from
        then on; `at_once` carries out a request without the inbox, if possible."""
        self._engine = engine
        self._notify = notify
        self._news = news
        self._at_once = at_once
        self.id = state.session_id
        self.state = state

    @property
    def status(self) -> Status:
        """`idle`, `running`, `paused`, `complete`, `failed` or `aborted`."""
        return self.state.status

    @property
    def questions(self) -> list[Asked]:
        """The open questions, in the order in which they were asked."""
        return [self.state.prompts[prompt_id] for prompt_id in asked_in_order(self.state)]

    @property
    def outputs(self) -> dict[str, Json]:
        """The outputs of the nodes that have completed, by their place in the flow."""
        runs = self.state.nodes.items()
        return {path: run.output for path, run in runs if run.status == "completed"}

    @property
    def error(self) -> dict[str, Json] | None:
        """Why it has failed, `{type, message, ...}`."""
        return self.state.error

    async def refresh(self) -> Session:
        """Read the state again."""
        self.state = await self._engine.verified_state(self.id)
        return self

    async def rest(self) -> Session:
        """Return once the session waits for somebody or something, or has ended. Raises fatal errors.

        A question that is not shown yet is waited for briefly: its clocks begin then.
        """
        loop = asyncio.get_running_loop()
        unseen_until = loop.time() + _UNSEEN_SECONDS
        while True:
            look = self._news(self.id)
            self.state = await self._engine.parked(self.id)
            unseen = any(asked.shown is None for asked in self.questions)
            if self.status != "running" and not (unseen and loop.time() < unseen_until):
                return self
            await self._engine.sessions.trusted(self.id)
            await look(_LOOK_SECONDS)

    async def ended(self) -> Session:
        """Return once the session has ended, however long people take."""
        while True:
            look = self._news(self.id)
            if (await self.rest()).state.ended:
                return self
            await self._engine.sessions.trusted(self.id)
            await look(_LOOK_SECONDS)

    # --- requests ------------------------------------------------------------------------------------------------

    async def answer(
        self,
        value: Json,
        *,
        actor: Actor,
        question: str | None = None,
        reason: str | None = None,
    ) -> Receipt:
        """Answer a question (the only open one unless `question`, a prompt id, names it): with an option's value or
        label, a text, or the fields of a form by name. Raises `SeveralPrompts`, `SessionError` if there is no question,
        and `RequestRefused`."""
        await self.refresh()
        found = [asked for asked in self.questions if question in (None, asked.prompt_id)]
        if not found:
            raise SessionError(f"Session {self.id} has no such open question; it is {self.state.stands}.")
        if len(found) > 1:
            names = ", ".join(f"{asked.prompt_id} ({asked.path})" for asked in found)
            raise SeveralPrompts(f"Session {self.id} asks several questions; name one: {names}.")
        asked = found[0]
        return await self.act(
            "answer",
            actor=actor,
            promptId=asked.prompt_id,
            reason=reason,
            nonce=asked.nonce,
            **_given(asked, value),
        )

    async def send(self, text: str, *, actor: Actor) -> Receipt:
        """Steer the session with a message; it answers no question."""
        return await self.act("steer", actor=actor, text=text)

    async def resume(self, text: str, *, actor: Actor) -> Receipt:
        """Continue with a session that a person paused."""
        return await self.act("resume", actor=actor, text=text)

    async def pause(self, *, actor: Actor, reason: str | None = None) -> Receipt:
        """Pause the session until `resume`; running nodes are told to leave."""
        return await self.act("pause", actor=actor, reason=reason)

    async def abort(self, *, actor: Actor, reason: str | None = None) -> Receipt:
        """End the session for good."""
        return await self.act("abort", actor=actor, reason=reason)

    async def act(self, do: str, *, actor: Actor, seconds: float = REPLY_SECONDS, **fields: Any) -> Receipt:
        """Carry out a request (`engine.run.remote_commands` knows its words), or put it into the inbox and wait so many
        seconds until it was carried out. Raises `RequestRefused`."""
        check_actor(actor)
        key = f"api:{self._engine.new_id()}"
        try:
            after = None
            if do not in _LONGER:
                wanted = remote_commands.own_command(key, do, actor=actor, **fields)
                after = await self._at_once(self.id, wanted)
        except StorageError:
            raise
        except SaysoError as error:
            raise RequestRefused(error.code, str(error)) from error
        if after is not None:
            self.state = after
            return Receipt(key, "applied")
        look = self._news(self.id)
        request = remote_commands.item(key, self.id, do, actor=actor, **fields)
        await self._engine.writer.ingest([request], self._engine.now())
        self._notify()
        await look(_LOOK_SECONDS)
        news = partial(self._news, self.id)
        receipt = await receipt_of(self._engine.writer, key, seconds=seconds, news=news)
        if receipt.outcome == "applied":
            await self.refresh()
        return receipt


def check_actor(actor: object) -> None:
    """Raise `TypeError` unless it is an `Actor`: names are given as texts easily."""
    if not isinstance(actor, Actor):
        raise TypeError(f'An actor is an Actor, such as Actor.local("ana"), not {actor!r}.')


def _given(asked: Asked, value: Json) -> dict[str, Json]:
    """An answer as the request has it: an option's value, the fields of a form, or a text."""
    if isinstance(value, dict):
        return {"values": value}
    if asked.options:
        option = match_option(asked.options, value) if isinstance(value, str) else None
        if option is not None or not asked.accepts_text:
            return {"value": value if option is None else option["value"]}
    if asked.fields and not isinstance(value, str):
        return {"value": value}
    return {"text": value if value is None or isinstance(value, str) else str(value)}
