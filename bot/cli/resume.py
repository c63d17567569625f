"""`sessions resume`, `pause` and `abort`: for a session that this process may take up, and for one that others run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from bot.cli.act import Handed, hand_over, runs_here, told
from bot.cli.lookup import (
    actor_for,
    again_if_moved,
    also_in_workspace,
    find_session,
    matches,
    need_database,
    refuse_ended,
)
from bot.terminal.cli_context import Place, opened, writing
from bot.terminal.exit_codes import Exit, UsageError, exit_of
from bot.terminal.follow import Begin, Mode, follow, local_gate, result_json
from bot.terminal.follower import Follower, open_prompts, read_answer
from bot.terminal.narration import asked_of, question_lines
from bot.terminal.output import one_line, print_json
from engine.decide.commands import Answer
from engine.journal.records import Head
from engine.journal.snapshot import read_export
from engine.journal.state import State
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.errors import SnapshotRefused
from engine.run.active import random_text
from engine.run.engine import Engine
from engine.run.sessions import stored_state
from engine.storage.port import Store

GO_ON = "resume"
"""What a held session is told where the person says nothing else."""


@dataclass(frozen=True)
class Resume:
    """What `sessions resume` was given."""

    session_id: str | None
    message: str | None
    snapshot: Path | None
    prompt: str | None
    answer: str | None
    as_name: str | None


@dataclass(frozen=True)
class Said:
    """What a person says to a session: an answer to one prompt, a message, or nothing but to go on."""

    prompt_id: str | None = None
    value: Json = None
    text: str | None = None
    reason: str | None = None
    files: list[Json] | None = None
    lets_go: bool = False
    """Whether a session that a person holds goes on with it."""

    @property
    def nothing(self) -> bool:
        """Whether the session just goes on."""
        return self.prompt_id is None and self.text is None


# --- resume ------------------------------------------------------------------------------------------------


@also_in_workspace
@again_if_moved
def resume_session(place: Place, wanted: Resume, mode: Mode) -> int:
    """Go on with a session; the exit code says where it rests. Raises `SaysoError`."""
    settings = place.settings()
    actor = actor_for(settings, wanted.as_name)
    if wanted.snapshot is not None:
        return _from_snapshot(place, wanted, wanted.snapshot.read_bytes(), actor, mode)
    if wanted.session_id is None:
        raise UsageError("Say which session: sayso sessions resume ID (sayso sessions list shows them).")
    need_database(settings, f"no session {wanted.session_id!r}")
    with opened(settings) as store:
        head = find_session(store, wanted.session_id)
        refuse_ended(head)
        state = stored_state(store, head.session_id)
        said = said_of(state, wanted, wanted.message)
        if head.thread_key and said.nothing:
            return _stands_in_slack(store, state, mode)
        if not said.nothing and not runs_here(store, head):
            return _resume_elsewhere(store, head, said, actor, mode)
    return follow(place, head.session_id, actor, mode, beginning(head.session_id, said, actor))


def said_of(state: State, wanted: Resume, message: str | None) -> Said:
    """What the options say to this session. Raises `UsageError`, and `InvalidAnswer` for no option of the question."""
    if wanted.answer is not None and message is not None:
        raise UsageError("Give either a MESSAGE or --answer, not both.")
    if wanted.answer is None and wanted.prompt is None:
        if state.phase == "held":
            return Said(text=message or GO_ON, lets_go=True)
        return Said(text=message)
    line = wanted.answer if wanted.answer is not None else message
    if line is None:
        raise UsageError("--prompt says which question; give the answer with --answer VALUE.")
    found = [
        prompt
        for prompt in open_prompts(state)
        if wanted.prompt is None or matches(prompt.prompt_id, wanted.prompt, "prompt-")
    ]
    if len(found) != 1:
        names = ", ".join(prompt.prompt_id for prompt in open_prompts(state)) or "none"
        raise UsageError(f"Say which question is answered, with --prompt ID. Open in this session: {names}.")
    value, text = read_answer(found[0], line)
    return Said(found[0].prompt_id, value, text)


def beginning(session_id: str, said: Said, actor: Actor) -> Begin:
    """To say this to the session, and then to go on with it."""

    async def begin(engine: Engine, follower: Follower) -> None:
        await _say(engine, session_id, said, actor)
        await follower.take_up()

    return begin


async def _say(engine: Engine, session_id: str, said: Said, actor: Actor) -> None:
    if said.prompt_id is not None:
        key = f"cli:{random_text()}"
        given = {"value": said.value, "text": said.text, "reason": said.reason, "files": said.files}
        await engine.apply(session_id, Answer(said.prompt_id, actor, key, **given))
    elif said.text is not None:
        await engine.resume(session_id, said.text, actor=actor)


def say_elsewhere(store: Store, head: Head, said: Said, actor: Actor) -> Handed:
    """The same through the inbox, for a session that another process serves. Raises what that process refuses."""
    if said.lets_go:
        return hand_over(store, head, "resume", actor, text=said.text)
    if said.prompt_id is None:
        return hand_over(store, head, "message", actor, text=said.text)
    given = {"value": said.value, "text": said.text, "reason": said.reason, "files": said.files}
    return hand_over(store, head, "answer", actor, promptId=said.prompt_id, **given)


def _resume_elsewhere(store: Store, head: Head, said: Said, actor: Actor, mode: Mode) -> int:
    handed = say_elsewhere(store, head, said, actor)
    state = stored_state(store, head.session_id)
    if mode.json:
        print_json({**result_json(state, store), "request": handed.outcome})
    else:
        print(told(handed, f"Taken; the session is {state.status}."))
    return handed.code


def _stands_in_slack(store: Store, state: State, mode: Mode) -> int:
    """A session of a thread goes on there: say what it waits for."""
    if mode.json:
        print_json(result_json(state, store))
        return exit_of(state)
    print(f"{state.session_id} lives in a Slack thread and goes on there; it is {state.status}.")
    for prompt in open_prompts(state):
        question = one_line(question_lines(prompt.message)[0])
        print(f"  waits for {asked_of(state, prompt)}: {question}")
        print(f"  answer it there, or: sayso prompts answer {prompt.prompt_id} ANSWER")
    return exit_of(state)


# --- from a file -------------------------------------------------------------------------------------------


def _from_snapshot(place: Place, wanted: Resume, data: bytes, actor: Actor, mode: Mode) -> int:
    """Continue from an exported file; the first argument may be its session's id, or the message already."""
    file = read_export(data)
    session_id, thread = str(file["sessionId"]), _thread(file)
    message = wanted.message
    if wanted.session_id is not None and not matches(session_id, wanted.session_id, "session-"):
        if message is not None:
            raise UsageError(f"The file holds {session_id}, not {wanted.session_id}.")
        message = wanted.session_id

    async def begin(engine: Engine, follower: Follower | None) -> None:
        state = await engine.resume_from_snapshot(data)
        await _say(engine, session_id, said_of(state, wanted, message), actor)
        if follower is not None:
            await follower.take_up()

    if thread:
        return asyncio.run(_bring(place, session_id, begin, mode))
    return follow(place, session_id, actor, mode, begin)


def _thread(file: dict[str, Json]) -> Json:
    try:
        return file["state"]["thread"]
    except (KeyError, TypeError) as error:
        raise SnapshotRefused("This is no snapshot file: its state is not one.") from error


async def _bring(place: Place, session_id: str, begin: Begin, mode: Mode) -> int:
    """Bring a session of a Slack thread into this database: the bot goes on with it, nothing starts here."""
    from bot.compose.assembly import make_engine

    settings = place.settings()
    with writing(settings) as store:
        engine = make_engine(settings, store, local_gate(settings), label="cli", slack=True)
        await engine.open()
        try:
            await engine.drain(0)
            await begin(engine, None)
            state = await engine.state(session_id)
        finally:
            await engine.close()
        found = result_json(state, store)
    if mode.json:
        print_json(found)
    else:
        print(f"{session_id} is in this database now. It lives in a Slack thread: the bot goes on with it.")
    return exit_of(state)


# --- pause -------------------------------------------------------------------------------------------------


@also_in_workspace
@again_if_moved
def pause_session(place: Place, text: str, reason: str | None, *, as_json: bool) -> int:
    """Hold a session: here, or by asking the process that serves it. Raises `SaysoError`."""
    settings = place.settings()
    actor = actor_for(settings, None)
    need_database(settings, f"no session {text!r}")
    with opened(settings) as store:
        head = find_session(store, text)
        refuse_ended(head)
        if not runs_here(store, head):
            handed = hand_over(store, head, "pause", actor, reason=reason)
            return _handed(store, head, handed, f"{head.session_id} is held.", as_json=as_json)

    async def begin(engine: Engine, follower: Follower) -> None:
        await engine.pause(head.session_id, actor=actor, reason=reason)

    code = follow(place, head.session_id, actor, Mode(ask=False, wait=False, json=as_json), begin)
    return Exit.OK if code == Exit.PAUSED else code


def _handed(store: Store, head: Head, handed: Handed, done: str, *, as_json: bool) -> int:
    if as_json:
        state = stored_state(store, head.session_id)
        print_json({**result_json(state, store), "request": handed.outcome})
    else:
        print(told(handed, done))
    return handed.code


# --- abort -------------------------------------------------------------------------------------------------


@also_in_workspace
@again_if_moved
def abort_session(place: Place, text: str, reason: str | None, *, as_json: bool) -> int:
    """End a session for good: here, or by asking the process that serves it. Raises `SaysoError`."""
    settings = place.settings()
    actor = actor_for(settings, None)
    need_database(settings, f"no session {text!r}")
    with opened(settings) as store:
        head = find_session(store, text)
        refuse_ended(head)
        if not runs_here(store, head):
            return _abort_elsewhere(store, head, actor, reason, as_json=as_json)

    async def begin(engine: Engine, follower: Follower) -> None:
        await engine.abort(head.session_id, actor=actor, reason=reason)

    code = follow(place, head.session_id, actor, Mode(ask=False, wait=False, json=as_json), begin)
    return Exit.OK if code == Exit.FAILED else code


def _abort_elsewhere(store: Store, head: Head, actor: Actor, reason: str | None, *, as_json: bool) -> int:
    handed = hand_over(store, head, "abort", actor, reason=reason)
    return _handed(store, head, handed, f"{head.session_id} is aborted.", as_json=as_json)
