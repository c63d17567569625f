"""One session followed at the terminal: it runs here until it ends, or waits for somebody who is not here.

Theory: the engine runs the session as it runs any; a `Follower` only is beside it. It does for a terminal what
the bot does for a thread: puts questions, hands in answers, delivers `message` nodes, fires timers, and takes up
requests of other processes (`sayso sessions abort` from another terminal). Nothing waits with the person: while a
question is on the screen the session is released and paused in the store, so a terminal that is closed, or killed,
loses nothing, and somebody else may answer meanwhile.

Leaving (`stop`) cuts the node that runs, records that, and keeps the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from bot.config.session_files import SessionFiles, keep, typed_paths
from bot.faces.question import Face
from bot.faces.run import lock_wait
from bot.outbound.progress import behind
from bot.rendering.notes import as_plain, given_files
from bot.rendering.prompts import session_face
from bot.terminal.forms import EDIT, FILL, Filling, editing_of, filling_of
from bot.terminal.narration import told
from bot.terminal.screen import TerminalScreen
from engine.decide import limits
from engine.decide.commands import Answer, Edit, Policy, Shown
from engine.forms import match_option
from engine.forms.question import Question, split_words
from engine.journal.events import Event
from engine.journal.records import OutboxRow
from engine.journal.state import Asked, State
from engine.language.actors import Actor
from engine.language.codec import Json, decode
from engine.language.errors import ClockJumped, InvalidAnswer, Owned, PromptTimedOut, Refused
from engine.nodes.runtime.folder import FileRefused
from engine.nodes.types.registry import mode_of, node_types
from engine.run import remote_commands
from engine.run.dispatcher import Dispatcher
from engine.run.engine import Engine
from engine.run.frontend import Message, NotDelivered
from engine.run.session import RequestRefused

POLL_SECONDS = 0.25
"""Seconds between looks at a session that another process may have moved."""

OVERDUE_SECONDS = 10.0
"""Seconds to wait for overdue work, which is usually done in an instant."""


SHOWN: dict[str, Json] = {"terminal": True}
"""Place of a prompt that is on a terminal."""


class TerminalFrontend:
    """Shows a session on a terminal. A second time something is printed again, which is harmless there."""

    def __init__(self, screen: TerminalScreen, files: SessionFiles | None = None) -> None:
        self._screen = screen
        self._files = files

    async def ask(self, state: State, asked: Asked, key: str) -> dict[str, Json]:
        """The question is put when it is its turn: one at a time is in front of a person."""
        return SHOWN

    async def close(self, state: State, asked: Asked) -> None:
        """Do nothing: printed text stays; `observe` shows the outcome."""

    async def deliver(self, message: Message, key: str) -> dict[str, Json]:
        """Print a message. As in Slack it fails where a file of it cannot be read."""
        try:
            for path in [file.path for file in given_files(message.config) if file.path]:
                if self._files is not None:
                    await self._files.content(message.session_id, path)
        except FileRefused as error:
            raise NotDelivered(f"The message could not be posted. {error}") from error
        self._screen.message(as_plain(message.config))
        return dict(node_types()["message"].unknown_output)

    def observe(self, state: State, events: Sequence[Event]) -> None:
        """Narrate what happened."""
        for event in events:
            self._screen.narrate(state, event)


@dataclass
class Typing:
    """Progress of typing an answer: with a form the fields so far; `edits` if that changes the proposal."""

    filling: Filling | None
    edits: bool = False


def terminal_label(session_id: str) -> str:
    """The label of a process that follows this session: others see by it who takes requests for the session."""
    return "cli_" + re.sub("[^a-z0-9_]", "_", session_id.removeprefix("session-").lower())[:28]


def new_session_id() -> str:
    """An id for a session that starts at the terminal."""
    return f"session-{os.urandom(5).hex()}"


@dataclass(eq=False, repr=False)
class Follower:
    """Follows one session. `ask` puts questions here, `wait` waits with `wait` nodes."""

    engine: Engine
    screen: TerminalScreen
    session_id: str
    _: KW_ONLY
    actor: Actor
    policy: Policy
    ask: bool = True
    wait: bool = True
    told: int = 0
    files: SessionFiles | None = None

    def __post_init__(self) -> None:
        self._frontend = TerminalFrontend(self.screen, self.files)
        self._news = asyncio.Event()
        self._stopping = asyncio.Event()
        self._service = Dispatcher(self.engine, only=self.session_id)
        self._serving: asyncio.Task[None] | None = None
        self._passed_over = -1
        self.left = False
        """True if the person at the terminal left."""
        self.too_late: PromptTimedOut | RequestRefused | None = None
        """Why what was to be done first was refused, where a deadline had passed: that is applied, and followed."""

    def stop(self) -> None:
        """Leave: cut what runs, keep the session."""
        self.left = True
        self._stopping.set()

    async def follow(self, begin: Callable[[], Awaitable[object]]) -> State:
        """Carry out `begin` (start it, answer, or just take it up) and follow to where it rests; the state there.

        Raises what `begin` raises, but for a deadline that has passed (see `too_late`), and storage errors.
        """
        unsubscribe = self.engine.subscribe(self._seen)
        try:
            try:
                await begin()
            except (PromptTimedOut, RequestRefused) as error:
                if error.code != PromptTimedOut.code:
                    raise
                self.too_late = error
                await self.claim()
            while True:
                self._serving = asyncio.create_task(self._service.run(), name="service")
                # A process that was killed may have left a request: it is done before this one rests, or asks.
                await self._first(self._service.caught_up(OVERDUE_SECONDS))
                state = await self._until_rest()
                await self._end_service()
                if self.left or not self.engine.sessions.at_work(self.session_id):
                    break
                # A request that was in hand just then let the session continue: leaving now would cut what it began.
                self._service = Dispatcher(self.engine, only=self.session_id)
            state = await self.engine.state(self.session_id)
            await self._catch_up(state)
            return state
        finally:
            unsubscribe()
            await self._end_service()

    async def claim(self) -> None:
        """Continue where it is; one that another living process runs is only followed."""
        head = await self.engine.head(self.session_id)
        if head.status == "running":
            with contextlib.suppress(Owned):
                await self.engine.apply(self.session_id, None)

    async def _end_service(self) -> None:
        self._service.stop()
        if self._serving is not None:
            await asyncio.gather(self._serving, return_exceptions=True)

    # --- the loop ------------------------------------------------------------------------------------------

    async def _until_rest(self) -> State:
        while True:
            # The state once nothing here works for the session; leaving makes that happen soon.
            await self._first(self.engine.parked(self.session_id))
            if self.left:
                await self.engine.drain(0)
            state = await self.engine.state(self.session_id)
            await self._catch_up(state)
            if self.left or state.ended or state.phase == "held":
                return state
            if await self._deliver(state):
                await self._moved_or_left(state.seq)
            elif state.seq != self._passed_over and any(
                timer.due_at <= self.engine.now() for timer in state.timers.values()
            ):
                # Something came due while nobody ran the session: it comes before any rest, and any question.
                # Wait until the service has done what is overdue. What it cannot do now must not keep us.
                self._passed_over = state.seq
                await self._first(self._moved_within(state.seq, OVERDUE_SECONDS))
            elif state.open_prompts:
                if not await self._question(state):
                    return await self.engine.state(self.session_id)
            elif not await self._elsewhere(state):
                return state

    async def _moved_within(self, seq: int, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._moved(seq)

    async def _elsewhere(self, state: State) -> bool:
        """Wait for a timer, or for another process that has the session; False if waiting is not wanted."""
        due = due_moments(state)
        if due and not self.wait:
            return False
        if limits.pending(state):
            if not self.wait:
                return False
            lock = told(lock_wait(state, await behind(self.engine.writer, state)))
            self.screen.note(
                f"Waits for {lock}. It continues automatically; if you leave, it keeps its place."
            )
        elif due:
            if any(timer.purpose != "retry" for timer in state.timers.values() if timer.due_at in due):
                # When a node is tried again was told with its failure.
                self.screen.waiting(min(due))
        else:
            head = await self.engine.head(self.session_id)
            if head.owner is not None:
                self.screen.note(f"Another process ({head.owner}) runs this session; following it.")
        await self._moved_or_left(state.seq)
        return True

    async def _first(self, *work: Coroutine[Any, Any, Any]) -> Any:
        """The result of what is first; None when the person left first. Raises what broke."""
        assert self._serving is not None
        tasks = [asyncio.create_task(coroutine) for coroutine in work]
        stop = asyncio.create_task(self._stopping.wait())
        done, _ = await asyncio.wait({*tasks, stop, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        for task in (*tasks, stop):
            if task not in done:
                task.cancel()
        await asyncio.gather(*tasks, stop, return_exceptions=True)
        if self._serving in done:
            self._serving.result()
        for task in tasks:
            if task in done:
                return task.result()
        return None

    async def _moved_or_left(self, seq: int) -> None:
        await self._first(self._moved(seq))

    async def _moved(self, seq: int) -> None:
        """Return when the session has gone beyond this event, by whatever process."""
        while (await self.engine.sessions.trusted(self.session_id)).seq <= seq:
            # Not `wait_for`: in Python 3.11 that swallows a cancellation that comes together with the news.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._news.wait()
            self._news.clear()

    # --- what happened -------------------------------------------------------------------------------------

    def _seen(self, state: State, events: Sequence[Event]) -> None:
        if state.session_id != self.session_id:
            return
        self._news.set()
        if events and events[0].seq == self.told + 1:
            self._narrate(state, events)

    async def _catch_up(self, state: State) -> None:
        """Tell what another process did."""
        if state.seq > self.told:
            events = await self.engine.journal(self.session_id)
            self._narrate(state, [event for event in events if self.told < event.seq <= state.seq])

    def _narrate(self, state: State, events: Sequence[Event]) -> None:
        self._frontend.observe(state, events)
        self.told = max([self.told, *(event.seq for event in events)])

    # --- message nodes -------------------------------------------------------------------------------------

    async def _deliver(self, state: State) -> bool:
        """Show the messages that are due; whether there is one whose outcome is still to come.

        A crash between showing and recording shows a message again: on a terminal that is harmless.
        """
        found = False
        for path in state.active:
            run = state.nodes[path]
            if run.status == "started" and mode_of(run.type) == "delivery":
                found = True
                key = f"message:{self.session_id}:{path}:{run.attempt}"
                row = await self.engine.writer.call(self.engine.store.outbox.row, key)
                if row is not None and row.state == "pending":
                    await self._deliver_row(row)
        return found

    async def _deliver_row(self, row: OutboxRow) -> None:
        data = decode(row.payload)
        attempt, now = self.engine.store.outbox.attempt, self.engine.now()
        if not await self.engine.writer.call(attempt, row.id, row.attempts, now):
            return
        do = "delivered"
        outcome: dict[str, Json] = {}
        message = Message.of(self.session_id, data["path"], data["config"])
        try:
            outcome["output"] = await self._frontend.deliver(message, row.key)
        except NotDelivered as error:
            do, outcome["error"] = "undelivered", {"type": "slack", "message": str(error)}
        place = {"path": data["path"], "attempt": data["attempt"]}
        item = remote_commands.item(f"{do}:{row.key}", self.session_id, do, **place, **outcome)
        now = self.engine.now()
        await self.engine.writer.call(
            self.engine.store.outbox.finish, row.id, row.rev, now=now, state="sent", items=[item]
        )
        self._service.notify()

    # --- questions -----------------------------------------------------------------------------------------

    async def _question(self, state: State) -> bool:
        """Put the first question that this person may answer; False when none can be put here."""
        for prompt in open_prompts(state):
            if prompt.shown != SHOWN:
                shown = await self._frontend.ask(state, prompt, prompt.prompt_id)
                with contextlib.suppress(Owned):
                    await self.engine.apply(self.session_id, Shown(prompt.prompt_id, shown))
        state = await self.engine.state(self.session_id)
        mine = [prompt for prompt in open_prompts(state) if self._is_asked(state, prompt)]
        if not (mine and self.ask):
            return not state.open_prompts
        said = session_face(state, mine[0], await self.engine.flow_of(self.session_id))
        self.screen.question(said)
        typing = Typing(filling_of(mine[0]))
        while True:
            if typing.filling is not None:
                self.screen.field(typing.filling.field)
            try:
                line = await self._first(self.screen.read(), self._moved(state.seq))
            except EOFError:
                self.stop()
                return True
            # No line: the person left, or the session moved on without them.
            if not isinstance(line, str) or await self._answered(said, line, typing):
                return True

    def _is_asked(self, state: State, prompt: Asked) -> bool:
        """True if this person may answer, and has not voted on it already."""
        voted = any(vote["actor"].get("id") == self.actor.id for vote in prompt.votes)
        return not voted and self.policy(self.actor, prompt.rules.action, state, prompt) is None

    async def _answered(self, said: Face, line: str, typing: Typing) -> bool:
        """True if the question is done; the screen shows the error of an answer."""
        prompt = said.question
        if typing.filling is None and wants_edit(prompt, line):
            typing.filling, typing.edits = editing_of(prompt), True
            return False
        if typing.filling is None and prompt.fills_beside and line.strip().casefold() == FILL:
            typing.filling = Filling(prompt.fields)
            return False
        try:
            command = await self._read(prompt, line, typing)
            if command is None:
                return False
            await self.engine.hear(self.session_id, command)
        except (InvalidAnswer, FileRefused) as error:
            words = any(not each.press for each in said.controls) and ":" not in line
            hint = " Add it after the decision: `reject: reason`." if words and typing.filling is None else ""
            self.screen.problem(f"{error}{hint}")
            # A whole form was refused: it begins again, and after a change the question itself.
            if typing.filling is not None and typing.filling.done:
                typing.filling.values.clear()
                if typing.edits:
                    typing.filling, typing.edits = None, False
            return False
        except (Refused, Owned, ClockJumped) as error:
            self.screen.problem(str(error))
        return True

    async def _read(self, prompt: Asked, line: str, typing: Typing) -> Answer | Edit | None:
        """Return the typed answer or change; None if a form has more fields. Raises `InvalidAnswer`, `FileRefused`."""
        key = f"terminal:{os.urandom(8).hex()}"
        nonce = prompt.nonce
        if typing.filling is not None:
            typing.filling.take(line)
            if not typing.filling.done:
                return None
            values = dict(typing.filling.values)
            if typing.edits:
                changed = {name: value for name, value in values.items() if value != prompt.values.get(name)}
                return Edit(prompt.prompt_id, self.actor, key, changed, nonce=nonce)
            return Answer(prompt.prompt_id, self.actor, key, values=values, nonce=nonce)
        paths = typed_paths(line) if prompt.accepts_files and self.files is not None else None
        if paths is not None and self.files is not None:
            kept = await asyncio.to_thread(keep, self.files, self.session_id, prompt.prompt_id, prompt, paths)
            return Answer(prompt.prompt_id, self.actor, key, files=kept, nonce=nonce)
        if prompt.accepts_files and not prompt.accepts_text:
            raise InvalidAnswer("This question takes files: write their paths, separated by spaces.")
        line, reason = split_words(prompt, line)
        value, text = read_answer(prompt, line, by_number=True)
        given = {"value": value, "text": text, "reason": reason, "nonce": nonce}
        return Answer(prompt.prompt_id, self.actor, key, **given)


def wants_edit(prompt: Question, line: str) -> bool:
    """True if the line asks to change the proposal; a choice of that name takes precedence."""
    chosen = match_option(prompt.options, line) is not None
    return line.strip().casefold() == EDIT and not chosen and editing_of(prompt) is not None


MOVES = ("wait", "retry", "followUp")
"""The timers with which a session continues by itself: a wait has ended, a node is tried again, an answer is final."""


def due_moments(state: State) -> list[str]:
    """The moments at which the session continues by itself."""
    return [timer.due_at for timer in state.timers.values() if timer.purpose in MOVES]


def open_prompts(state: State) -> list[Asked]:
    """The open prompts, in the order in which they were asked."""
    return [state.prompts[prompt_id] for prompt_id in state.open_prompts]


def read_answer(prompt: Question, line: str, *, by_number: bool = False) -> tuple[Json, str | None]:
    """A line as `(value, text)`: an option by label or value (and by number where a person sees numbers), else text where
    the question takes one.

    Raises `InvalidAnswer` for what is not an option.
    """
    options = prompt.options
    if not options:
        return None, line
    found = match_option(options, line, by_number=by_number)
    if found is None and prompt.accepts_text:
        return None, line
    if found is None:
        labels = ", ".join(str(option["label"]) for option in options)
        raise InvalidAnswer(f"Please choose one of: {labels}.")
    return found["value"], None
