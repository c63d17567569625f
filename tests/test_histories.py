"""Golden histories: journals that a release wrote, replayed forever. The files are never edited.

`<name>.jsonl` is the journal as stored, `<name>.state.json` the state that it folds to, `<name>.flow.json` the flow
that the session pinned. A release that changes events or state reads these by upcasting, and adds its own folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.decide.agents.kinds import KINDS
from engine.decide.due import due
from engine.flow import Flow
from engine.flow.load import flow_from_body
from engine.journal.events import EVENTS, SCHEMA_VERSION, Event, decode_event
from engine.journal.fold import derive_state, evolve
from engine.journal.snapshot import from_json, read_document, to_json
from engine.journal.state import State
from tests.support.engine import Scenario, check_invariants

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*/*.jsonl"))
NAMES = [f"{path.parent.name}/{path.stem}" for path in HISTORIES]


def journal(path: Path) -> list[Event]:
    """The events of a history."""
    return [decode_event(line) for line in path.read_bytes().splitlines()]


def pinned(path: Path) -> Flow:
    """The flow of a history."""
    return flow_from_body(path.with_suffix(".flow.json").read_bytes())


def projected(document: dict[str, Any]) -> dict[str, Any]:
    """What a state's document says beside the truth, as every schema names it."""
    stack = [{**frame, "completedIterations": None} for frame in document["containerStack"]]
    names = ("status", "currentNodeId", "currentNodeIndex", "outputs", "loopCounters")
    return {**{name: document[name] for name in names}, "containerStack": stack}


def test_there_are_histories() -> None:
    """A release ships complete, failed, aborted and paused runs, one that waits inside a container, and conversations."""
    names = {"complete", "failed", "aborted", "paused", "inside", "talking", "talked"}
    assert {name.split("/")[1] for name in NAMES} >= names


@pytest.mark.parametrize("path", HISTORIES, ids=NAMES)
def test_a_history_folds_to_the_state_that_it_folded_to(path: Path) -> None:
    """Every journal of every release still gives the same state, event by event."""
    expected = orjson.loads(path.with_suffix(".state.json").read_bytes())
    state = derive_state(journal(path))
    assert from_json(expected) == state
    assert projected(expected) == projected(orjson.loads(orjson.dumps(to_json(state))))


@pytest.mark.parametrize("path", HISTORIES, ids=NAMES)
def test_a_state_of_a_release_can_be_read(path: Path) -> None:
    """A snapshot's state that a release wrote is the state that its journal folds to."""
    stored = orjson.loads(path.with_suffix(".state.json").read_bytes())
    read = read_document(orjson.dumps({"version": 1, "events": SCHEMA_VERSION, "state": stored}))
    assert read == derive_state(journal(path))
    assert from_json(orjson.loads(orjson.dumps(to_json(read)))) == read


@pytest.mark.parametrize("path", HISTORIES, ids=NAMES)
def test_a_pinned_flow_still_loads_and_is_the_one_that_was_pinned(path: Path) -> None:
    """The original text of the flow is used, and its digest is the one in the journal."""
    flow, first = pinned(path), journal(path)[0]
    assert flow.digest == getattr(first, "flow_digest", None)


@pytest.mark.parametrize("path", HISTORIES, ids=NAMES)
def test_a_history_written_again_is_the_same_bytes(path: Path) -> None:
    """Reading and writing an event changes no byte of it, so MACs over old rows hold."""
    lines = path.read_bytes().splitlines()
    assert [event.to_bytes() for event in journal(path)] == lines


@pytest.mark.parametrize("path", HISTORIES, ids=NAMES)
def test_a_history_makes_sense_to_this_release(path: Path) -> None:
    """Whatever was paused then can be brought to its end now; what had ended takes nothing."""
    case = Scenario(pinned(path))
    case.events = journal(path)
    case.state = derive_state(case.events)
    case.epoch = 100
    check_invariants(case.flow, case.events, case.state, case.epoch)
    if case.state.ended:
        assert due(case.flow, case.state, KINDS) == []
        case.claimed().then()
        return
    case.when(case.answer(case.prompt.options[0]["value"]))
    assert case.state.status == ("running" if path.stem == "talking" else "complete")
    check_invariants(case.flow, case.events, case.state, case.epoch)


def _snake_names(value: Any, path: str = "") -> list[str]:
    """Every key with an underscore in a document, except within what flows, people and services wrote."""
    if isinstance(value, list):
        return [name for item in value for name in _snake_names(item, path)]
    if not isinstance(value, dict):
        return []
    theirs = {"input", "inputs", "given", "items", "last", "spec", "usage", "messages", "results"}
    theirs |= {"content", "output", "outputs", "partialChildOutputs", "completedIterations", "details"}
    return [
        name
        for key, item in value.items()
        for name in ([path + key] if "_" in key else [])
        + _snake_names({} if key in theirs else item, f"{key}.")
    ]


@pytest.mark.parametrize("path", HISTORIES, ids=NAMES)
def test_the_document_of_a_state_has_one_case(path: Path) -> None:
    """Every name in it is camelCase below the first level too, at every event of every history."""
    state = State()
    for event in journal(path):
        state = evolve(state, event)
        assert _snake_names(to_json(state)) == []


def test_no_history_is_the_empty_state() -> None:
    """An empty journal folds to the idle state."""
    assert derive_state([]) == State()


def test_a_change_of_the_events_counts_the_schema_up() -> None:
    """An older release can leave alone what it does not know only if rows say so: another event or field, another version.

    `schemas.json` lists what is in events by version. The version of a release that is out is never edited; add one,
    and raise `SCHEMA_VERSION`.
    """
    schemas = orjson.loads((Path(__file__).parent / "histories/schemas.json").read_bytes())
    assert max(map(int, schemas)) == SCHEMA_VERSION
    now = {name: " ".join(("type", *kind.__struct_encode_fields__)) for name, kind in EVENTS.items()}
    assert now == schemas[str(SCHEMA_VERSION)]
