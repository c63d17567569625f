"""Follows a session in this terminal, and says how it ended or what it waits for: in lines for people, and as
the JSON that `run`, `resume` and `answer` print.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO, TypeAlias, TypeVar

from msgspec import Struct

from bot.config.session_files import SessionFiles
from bot.config.settings import Settings
from bot.faces.question import asked
from bot.rendering.prompts import session_face
from bot.terminal.console import (
    INTERRUPTED,
    Paint,
    Place,
    clean,
    exit_of,
    leave_at_once,
    moment,
    one_line,
    print_json,
    writing,
)
from bot.terminal.described import MARKS
from bot.terminal.follower import MOVES, Follower, due_moments, open_prompts, terminal_label
from bot.terminal.narration import as_played, asked_line, error_of, error_text, prompt_json
from bot.terminal.screen import TerminalScreen
from engine.decide import limits
from engine.decide.policy import Gate
from engine.journal.events import decode_event
from engine.journal.phases import REJECTED
from engine.journal.queries import ended_at, is_rejection, next_try, verdict
from engine.journal.state import State
from engine.language import timestamps
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.counting import elapsed
from engine.language.errors import SessionError
from engine.run.engine import Engine
from engine.storage.store import Store

ONE_SIGNAL_SECONDS = 0.1
"""SIGTERMs so close together are one wish: `timeout` of the coreutils sends its signal to the program and to its group."""

T = TypeVar("T")
Begin: TypeAlias = Callable[[Engine, Any], Awaitable[object]]
"""First action: start the session, answer something, or take it up as it is."""


class Mode(Struct, frozen=True):
    """Options for following a session: `ask` puts questions here, `wait` stays for times and locks, `json` ends in
    JSON."""

    ask: bool
    wait: bool
    json: bool

    @classmethod
    def of(cls, *, no_input: bool, wait: bool | None, as_json: bool) -> Mode:
        """The mode for these options: without a terminal nobody is asked, nothing but work is waited for, and standard
        output is for a machine."""
        person = sys.stdin.isatty() and not no_input
        return cls(ask=person, wait=person if wait is None else wait, json=as_json or not person)

    @property
    def out(self) -> TextIO:
        """Return the stream that people read."""
        return sys.stderr if self.json else sys.stdout


def local_gate(settings: Settings) -> Gate:
    """The policy of a process without Slack: nobody of Slack acts here."""
    return Gate(None, settings.admins, settings.allow_guests, allow_local=True)


async def with_engine(
    settings: Settings, store: Store, work: Callable[[Engine], Awaitable[T]], *, slack: bool = False
) -> T:
    """Do some work with an engine of this process, and close it."""
    from bot.compose.environment import make_engine

    engine = make_engine(settings, store, local_gate(settings), label="cli", slack=slack)
    await engine.open()
    try:
        return await work(engine)
    finally:
        await engine.close()


def follow(place: Place, session_id: str, actor: Actor, mode: Mode, begin: Begin) -> int:
    """Follow a session to where it rests, say how that is, and give the exit code. Raises `SaysoError`."""
    try:
        return asyncio.run(_follow(place, session_id, actor, mode, begin))
    except asyncio.CancelledError:
        resume = place.command("sessions", "resume", session_id)
        print(
            f"Quit immediately; the outcome of running steps is unknown. Session kept: {resume}",
            file=sys.stderr,
        )
        return INTERRUPTED


async def _follow(place: Place, session_id: str, actor: Actor, mode: Mode, begin: Begin) -> int:
    # It brings Slack's libraries with it: not before a session really runs.
    from bot.compose.environment import make_engine

    settings = place.settings()
    gate = local_gate(settings)
    with writing(settings) as store:
        engine = make_engine(settings, store, gate, label=terminal_label(session_id), slack=False)
        screen = TerminalScreen(mode.out)
        engine.executor.on_stream = screen.streamed
        await engine.open()
        try:
            head = await engine.writer.call(store.sessions.head, session_id)
            if head is not None and mode.ask:
                # Of a session that continues: how far it is.
                state, flow = await engine.state(session_id), await engine.flow_of(session_id)
                done = sum(1 for path in state.nodes if "/" not in path and path not in state.active)
                name = screen.paint("bold", clean(state.flow_name))
                far = f"{session_id}, {done} of {len(flow.nodes)} nodes done"
                screen.line(f"{name}  {screen.paint('dim', far)}")
            follower = Follower(
                engine,
                screen,
                session_id,
                actor=actor,
                policy=gate,
                ask=mode.ask,
                wait=mode.wait,
                told=0 if head is None else head.seq,
                files=SessionFiles(settings.home, engine.files),
            )
            # Prints of users' functions go to the stream that people read: a program may read standard output.
            with _signals(follower, screen), redirect_stdout(mode.out):
                state = await follower.follow(lambda: begin(engine, follower))
        finally:
            screen.close()
            await engine.close()
        found = result_json(state, store)
        retries = not mode.json and state.status == "failed" and _can_be_retried(store, state.session_id)
    if mode.json:
        print_json(found)
    else:
        _tell_end(place, follower, state, found["waitsFor"], retries=retries)
    if follower.too_late is not None:
        raise follower.too_late
    return exit_of(state)


@contextmanager
def _signals(follower: Follower, screen: TerminalScreen) -> Iterator[None]:
    """The first signal leaves in order; a second one leaves at once, and what runs is killed."""
    loop = asyncio.get_running_loop()
    names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    ended = float("-inf")

    def terminate() -> None:
        nonlocal ended
        before, ended = ended, loop.time()
        if ended - before > ONE_SIGNAL_SECONDS:
            leave()

    def leave() -> None:
        if follower.left:
            leave_at_once()
            return
        screen.line()
        if screen.working:
            screen.note(f"Stopping {screen.working}; press Ctrl-C again to quit now")
        follower.stop()

    for name in names:
        loop.add_signal_handler(name, terminate if name == signal.SIGTERM else leave)
    try:
        yield
    finally:
        for name in names:
            loop.remove_signal_handler(name)


# --- how it ended ------------------------------------------------------------------------------------------


def result_json(state: State, store: Store) -> dict[str, Json]:
    """Return the resting state of a session, and its waits, for a machine. Raises `StorageError`."""
    waits = due_moments(state)
    return {
        "sessionId": state.session_id,
        "flow": state.flow_name,
        "status": state.status,
        "standing": state.standing,
        "prompts": [
            prompt_json(session_face(state, prompt, None), state.session_id, state.flow_name)
            for prompt in open_prompts(state)
        ],
        "waitsFor": list(_waits_for(state, store)),
        "waitsUntil": min(waits) if waits else None,
        **(
            {"waitsForLock": state.lock.name}
            if state.lock is not None and limits.pending(state) and not state.ended
            else {}
        ),
        "outputs": {
            # As they began; a map in memory has no order of its own.
            path: run.output
            for path, run in sorted(state.nodes.items(), key=lambda item: (item[1].started_at or "", item[0]))
            if run.status == "completed"
        },
        "error": error_of(state),
        "code": (state.error or {}).get("type") if state.status == "failed" else None,
        "limits": list(state.limits),
        "endedAt": None if (end := ended_at(state)) is None else end.node_id,
    }


def _can_be_retried(store: Store, session_id: str) -> bool:
    """True if `sessions retry` would try a session again."""
    from engine.decide.past import failed_at  # not for each answer

    try:
        failed_at([decode_event(row) for row in store.sessions.journal(session_id)])
    except SessionError:
        return False
    return store.sessions.head(next_try(session_id)) is None


def _tell_end(
    place: Place, follower: Follower, state: State, waits: Sequence[dict[str, Json]], *, retries: bool
) -> None:
    screen, paint = follower.screen, follower.screen.paint
    took = elapsed(timestamps.seconds_between(state.created_at, state.updated_at))
    match state.status:
        case "complete":
            at_limits = "; ".join(one_line(limits.told(limit)) for limit in state.limits)
            screen.line(
                _signed(paint, "completed", f"completed after {took}")
                + (f", at {clean(end.node_id)}" if (end := ended_at(state)) else "")
                + (f", at a limit: {at_limits}" if at_limits else "")
            )
        case "failed" if is_rejection(state.error):
            screen.line(_signed(paint, REJECTED, one_line(verdict(as_played(state, state.error)), 200)))
        case "failed":
            screen.line(_signed(paint, "failed", f"failed: {error_text(error_of(state))}"))
            if retries:
                again = place.command("sessions", "retry", state.session_id)
                screen.line(f"Try again from the failed step: {paint('bold', again)}")
        case "aborted":
            screen.line(_signed(paint, "aborted", "cancelled"))
        case _:
            if state.phase == "held":
                screen.line(_signed(paint, "paused", f"paused: {one_line(state.pause_reason or '', 200)}"))
            if not follower.left:
                # The questions that were not put here: whom they ask, and how they are answered.
                for prompt in open_prompts(state):
                    screen.line(f"  {paint(*MARKS['waiting'])} {asked_line(state, prompt)}")
                    answer = place.command("prompts", "answer", prompt.prompt_id)
                    if follower.policy(follower.actor, prompt.rules.action, state, prompt) is None:
                        screen.note(f"    answer it: {answer} ANSWER")
                    elif not state.thread:
                        whom = next(
                            (entry for entry in asked(prompt, state.actor) if entry != "channel"), "NAME"
                        )
                        screen.note(f"    to act as one of them: {answer} --as {shlex.quote(whom)} ANSWER")
                for wait in filter(None, map(line, waits)):
                    screen.line(f"  {paint(*MARKS['waiting'])} {wait}")
            resume = place.command("sessions", "resume", state.session_id)
            screen.line(f"The session is kept. Continue with: {paint('bold', resume)}")


def _signed(paint: Paint, status: str, words: str) -> str:
    color, sign = MARKS[status]
    return paint(color, f"{sign} {words}")


# --- what a session waits for ------------------------------------------------------------------------------


def _waits_for(state: State, store: Store) -> Iterator[dict[str, Json]]:
    """All that can move the session now, each by its `kind`: `person`, `lock` or `time`; see docs/sessions.md.

    Empty for one that has ended, and for one that a process is working for. Raises `StorageError`.
    """
    if state.ended:
        return
    if state.phase == "held":
        yield {"kind": "person", "promptId": None, "path": None, "who": ["requester"], "until": None}
    for prompt in open_prompts(state):
        who = asked(prompt, state.actor)
        found = {"promptId": prompt.prompt_id, "path": prompt.path, "who": who, "until": prompt.deadline}
        yield {"kind": "person", **found}
    if state.lock is not None and limits.pending(state):
        behind = limits.standing(store.locks.rows(state.lock.name), state.session_id)
        holder = None if behind is None else behind[0]
        yield {"kind": "lock", "name": state.lock.name, "holder": holder, "until": None}
    for timer in sorted(state.timers.values(), key=lambda timer: (timer.due_at, timer.timer_id)):
        if timer.purpose in MOVES:
            yield {"kind": "time", "for": timer.purpose, "path": timer.path, "until": timer.due_at}


def line(wait: Mapping[str, Json]) -> str | None:
    """A lock or a time as a line; None for a person, whose question is told with its own words."""
    if wait["kind"] == "lock":
        held = f", held by {wait['holder']}" if wait["holder"] else ""
        return f"waits for lock {one_line(wait['name'], 80)}{held}"
    if wait["kind"] == "time":
        why = {"retry": " to try again", "followUp": " for replies"}
        return f"waits until {moment(wait['until'])}{why.get(wait['for'], '')}  {clean(wait['path'] or '')}"
    return None
