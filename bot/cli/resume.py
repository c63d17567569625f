"""`sessions resume`, `pause` and `abort`."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from bot.cli.act import Act, act, request_of, served
from bot.cli.lookup import actor_for, also_in_workspace, find_open_session, matches
from bot.terminal.console import Exit, Place, UsageError, exit_of, print_json, writing
from bot.terminal.follow import Begin, Mode, follow, result_json, with_engine
from bot.terminal.follower import Follower, open_prompts, read_answer
from engine.journal.records import Head
from engine.journal.snapshot import read_export
from engine.journal.state import State
from engine.language.errors import EmptyMessage, SessionRunning, SnapshotRefused
from engine.run.engine import Engine
from engine.run.session import carry_out
from engine.run.stored import stored_state
from engine.storage.sealing import BEGINS
from engine.storage.store import Store

GO_ON = "resume"
"""Message to a held session if the person gives none."""


class Resume(Struct, frozen=True):
    """Arguments of `sessions resume`."""

    session_id: str | None
    message: str | None
    snapshot: Path | None
    prompt: str | None
    answer: str | None
    as_name: str | None


def resume_command(place: Place, *, no_input: bool, wait: bool | None, as_json: bool, **given: Any) -> int:
    """Continue with a session as the options say. Raises `SaysoError`."""
    return resume_session(place, Resume(**given), Mode.of(no_input=no_input, wait=wait, as_json=as_json))


@also_in_workspace
def resume_session(place: Place, wanted: Resume, mode: Mode) -> int:
    """Continue with a session; the exit code says where it rests. Raises `SaysoError`."""
    if wanted.snapshot is not None:
        return _from_snapshot(place, wanted, wanted.snapshot.read_bytes(), mode)
    if wanted.session_id is None:
        raise UsageError("Name the session: sayso sessions resume ID (sayso sessions list shows them).")
    text = wanted.session_id

    def find(store: Store) -> tuple[Head, Act | None]:
        head = find_open_session(store, text)
        said = said_of(stored_state(store, head.session_id), wanted, wanted.message)
        if said is not None and said.do != "answer" and not head.thread_key and not served(store, head):
            # Refuse what says nothing, or comes to a session whose process is gone: that one is gone on
            # with first.
            message = str(said.fields["text"])
            if not message.strip():
                raise EmptyMessage("The message is empty. Give a message to resume with.")
            if head.status == "running":
                raise SessionRunning(f"Session {head.session_id} is already running; nothing was changed.")
        return head, said

    return act(place, f"no session {text!r}", find, wanted.as_name, mode)


def said_of(state: State, wanted: Resume, message: str | None) -> Act | None:
    """Return the request in the options for this session; None if it just continues. Raises `UsageError`, and
    `InvalidAnswer` for an invalid option of the question."""
    if wanted.answer is not None and message is not None:
        raise UsageError("Give either a MESSAGE or --answer, not both.")
    if wanted.answer is None and wanted.prompt is None:
        if state.phase == "held":
            return Act("resume", {"text": message or GO_ON}, goes_on=True)
        return None if message is None else Act("message", {"text": message}, goes_on=True)
    line = wanted.answer if wanted.answer is not None else message
    if line is None:
        raise UsageError("--prompt selects the question; give the answer with --answer VALUE.")
    found = [
        prompt
        for prompt in open_prompts(state)
        if wanted.prompt is None or matches(prompt.prompt_id, wanted.prompt, "prompt-")
    ]
    if len(found) != 1:
        names = ", ".join(prompt.prompt_id for prompt in open_prompts(state)) or "none"
        raise UsageError(f"Select the question with --prompt ID. Open in this session: {names}.")
    value, text = read_answer(found[0], line)
    return Act("answer", {"promptId": found[0].prompt_id, "value": value, "text": text}, goes_on=True)


# --- from a file -------------------------------------------------------------------------------------------


def _from_snapshot(place: Place, wanted: Resume, data: bytes, mode: Mode) -> int:
    """Continue from an exported file; the first argument may be its session's id, or the message already."""
    from engine.run.export import contents, verified_file  # few are resumed from a file

    actor = actor_for(place.settings(), wanted.as_name)
    if data.startswith(BEGINS):
        from bot.cli.store import readable

        data = readable(place.settings(), data)
    file = read_export(data)
    session_id, message = str(file["sessionId"]), wanted.message
    try:
        thread = file["state"]["thread"]
    except (KeyError, TypeError) as error:
        raise SnapshotRefused("This is not a snapshot file: its state cannot be read.") from error
    if wanted.session_id is not None and not matches(session_id, wanted.session_id, "session-"):
        if message is not None:
            raise UsageError(f"The file holds {session_id}, not {wanted.session_id}.")
        message = wanted.session_id

    async def begin(engine: Engine, follower: Follower | None) -> None:
        # What cannot be said to it leaves nothing here.
        said_of(contents(await verified_file(engine.writer, data))[1], wanted, message)
        state = await engine.resume_from_snapshot(data)
        said = said_of(state, wanted, message)
        if said is not None:
            await carry_out(engine, request_of(session_id, said, actor))
        if follower is not None:
            await follower.claim()

    if thread:
        return asyncio.run(_bring(place, session_id, begin, mode))
    return follow(place, session_id, actor, mode, begin)


async def _bring(place: Place, session_id: str, begin: Begin, mode: Mode) -> int:
    """Bring a session of a Slack thread into this database: the bot continues with it, nothing starts here."""

    async def work(engine: Engine) -> State:
        await engine.drain(0)
        await begin(engine, None)
        return await engine.state(session_id)

    settings = place.settings()
    with writing(settings) as store:
        state = await with_engine(settings, store, work, slack=True)
        found = result_json(state, store)
    if mode.json:
        print_json(found)
    else:
        print(f"{session_id} is now in this database. It runs in a Slack thread, so the bot continues it.")
    return exit_of(state)


# --- pause and abort ---------------------------------------------------------------------------------------


_STOPS = {"pause": ("paused", Exit.PAUSED), "abort": ("cancelled", Exit.FAILED)}


@also_in_workspace
def _stop(place: Place, text: str, reason: str | None, *, do: str, as_json: bool) -> int:
    """Hold a session, or end it for good. Raises `SaysoError`."""
    stands, rests = _STOPS[do]

    def find(store: Store) -> tuple[Head, Act]:
        head = find_open_session(store, text)
        return head, Act(do, {"reason": reason}, f"{head.session_id} is {stands}.", rests=rests)

    return act(place, f"no session {text!r}", find, None, Mode(ask=False, wait=False, json=as_json))


pause_session = partial(_stop, do="pause")
abort_session = partial(_stop, do="abort")
