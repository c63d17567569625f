"""Finds what people mean: flows by name or file, their inputs, sessions and questions by the beginning of their ids."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from msgspec.structs import replace

from bot.cli.flow_names import flow_name
from bot.config.settings import Settings, account
from bot.terminal.console import Place, UsageError, database_exists, opened
from engine.flow.load import SUFFIXES
from engine.journal.phases import ENDED
from engine.journal.records import Head
from engine.journal.state import State
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.diagnostics import suggest
from engine.language.errors import (
    FlowError,
    SaysoError,
    SessionEnded,
    SessionQuarantined,
    StorageError,
    UnknownFlow,
    UnknownSession,
)
from engine.run.stored import known_flow, stored_state
from engine.storage.store import Store
from prompt_state import question_row as prompt_store
from prompt_state.question_row import PromptState

if TYPE_CHECKING:
    from engine.flow import Flow

P = ParamSpec("P")


def actor_for(settings: Settings, as_name: str | None) -> Actor:
    """Return the actor: the person at the terminal, or the one they play."""
    return Actor.pretend(as_name) if as_name else Actor.local(settings.local_user, account())


def find_flow(settings: Settings, name: str) -> Flow:
    """A flow by its file, or by its name in the folder of flows. Raises `FlowError`, `UnknownFlow`, `UsageError`."""
    if name.endswith(SUFFIXES) or os.sep in name:
        if not Path(name).is_file():
            raise UsageError(f"There is no flow file {name}.")
        known = _known(settings, Path(name).resolve())
        if known is not None:
            return known
        from engine.run.flow_files import load_flow_file

        # A node finds its programs beside the flow's file, so the session pins where that is.
        return replace(load_flow_file(name), file=str(Path(name).resolve()))
    from engine.run.flow_files import load_flows  # most commands read no folder

    flows, errors = load_flows(settings.flows) if settings.flows.is_dir() else ({}, {})
    if name in flows:
        return flows[name]
    for file, error in errors.items():
        if Path(file).stem == name or flow_name(Path(file)) == name:
            raise error
    unread = ", ".join(sorted(errors))
    told = f" Some files there cannot be read (sayso validate says why): {unread}." if unread else ""
    if not flows and not told:
        raise UnknownFlow(
            f"There is no flow {name!r}: {settings.flows} has no flows. Name a file, or use --flows."
        )
    hint = suggest(name, flows)
    raise UnknownFlow(
        f"There is no flow {name!r} in {settings.flows}" + (f" ({hint})." if hint else ".") + told
    )


def _known(settings: Settings, file: Path) -> Flow | None:
    """The flow of a file that was run here before as it is now; then it need not be read."""
    try:
        text = file.read_text(encoding="utf-8")
        said = re.search(r"^flow:[ \t]*([a-z][a-z0-9_-]*)[ \t]*$", text, re.MULTILINE)
        if said is None or not database_exists(settings):
            return None
        with opened(settings) as store:
            return known_flow(store, said[1], str(file), text)
    except (OSError, ValueError, StorageError):
        return None


def find_session(store: Store, text: str) -> Head:
    """A session by its id or a beginning of it that only it has. Raises `UnknownSession`."""
    head = store.sessions.head(text)
    if head is not None:
        return head
    heads = {known.session_id: known for known in store.sessions.heads(limit=None)}
    return heads[_one_of(text, list(heads), "session-", "session")]


def find_prompt(store: Store, text: str) -> PromptState:
    """A question by its id or a beginning of it that only one open one has. Raises `UnknownSession`."""
    exact = prompt_store.find(store.prompts, text)
    if exact is not None:
        return exact
    asked = {prompt.prompt_id: prompt for prompt in prompt_store.waiting(store.prompts)}
    if not any(matches(known, text, "prompt-") for known in asked):
        listed = {prompt.session_id for prompt in asked.values()}
        for state in unlisted(store, listed):
            asked |= {
                name: prompt_store.prompt_state(state, state.prompts[name]) for name in state.open_prompts
            }
    return asked[_one_of(text, list(asked), "prompt-", "open question")]


def unlisted(store: Store, listed: Container[str]) -> Iterator[State]:
    """The paused sessions that ask something by their journal and are not among the `listed` ids, to which the rows of
    questions belong: somebody may have deleted a row."""
    for head in store.sessions.heads(statuses=("paused",), limit=None):
        if head.session_id not in listed and not head.quarantined:
            # One that cannot be read is put on hold by whoever takes it up.
            with contextlib.suppress(SaysoError):
                state = stored_state(store, head.session_id)
                if state.open_prompts:
                    yield state


def _one_of(text: str, ids: Sequence[str], prefix: str, word: str) -> str:
    found = [known for known in ids if matches(known, text, prefix)]
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
        raise UnknownSession(f"{len(found)} of them begin with {text!r}: {shown}. Give more of the ID.")
    # Nothing like it is named: ids that look alike are those of others, and one of them would be acted on.
    raise UnknownSession(f"There is no {word} {text!r}.")


def matches(known: str, text: str, prefix: str) -> bool:
    """True if a text is the beginning of an id, which may be written without its `session-` or `prompt-`."""
    return bool(text) and known.startswith((text, prefix + text))


def find_open_session(store: Store, text: str) -> Head:
    """The same, where it takes anything. Raises `UnknownSession`, `SessionEnded`, `SessionQuarantined`."""
    head = find_session(store, text)
    refuse_ended(head)
    return head


def refuse_ended(head: Head) -> None:
    """Raise where a session takes nothing more: `SessionEnded`, `SessionQuarantined`."""
    if head.quarantined:
        raise SessionQuarantined(f"Session {head.session_id} is on hold: {head.quarantined}")
    if head.status in ENDED:
        raise SessionEnded(f"Session {head.session_id} has already ended; nothing was changed.")


def also_in_workspace(command: Callable[Concatenate[Place, P], int]) -> Callable[Concatenate[Place, P], int]:
    """A command about a session or a question that, where this home does not have it, is carried out in the home of the
    local workspace: `sayso dev` shows ids, and keeps them in `dev/` of the same home."""

    @functools.wraps(command)
    def carried_out(place: Place, /, *args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return command(place, *args, **kwargs)
        except UnknownSession:
            workspace = place.workspace()
            if workspace is None:
                raise
            with contextlib.suppress(UnknownSession):
                return command(workspace, *args, **kwargs)
            raise

    return carried_out


def read_inputs(pairs: Sequence[str], file: Path | None) -> dict[str, Json]:
    """Inputs from a file and from `key=value`, which win. Raises `UsageError`, and `FlowError` for a broken file."""
    given = dict[str, Json]()
    if file is not None:
        # JSON is YAML, so one reader takes both, with its limits and its places of errors.
        from engine.language.yaml import decode_source, load_located

        located = load_located(decode_source(file.read_bytes(), str(file)), str(file))
        if located.problems or located.doubts:
            raise FlowError(located.problems + located.doubts)
        if not isinstance(located.data, dict):
            raise UsageError(f"{file} is not a mapping of inputs; write one `name: value` per line.")
        given |= located.data
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"An input is given as key=value, not {pair!r}.")
        given[key.strip()] = value
    return given
