"""Snapshots: the state at a pause as one JSON document, a cache of the fold and a portable file. Pure.

v1: `{version, events, sessionId, event, state, meta: {promptId, channel, threadTs, threadKey, promptTs}}`; the exported
file adds `journal` (the events) and `flow` (the pinned text), and `mac`.
"""

from __future__ import annotations

from engine.journal.events import SCHEMA_VERSION, Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.records import Loaded
from engine.journal.state import State
from engine.journal.state_json import from_json, to_json
from engine.language.codec import Json, canonical, decode
from engine.language.errors import MalformedJournal, NotJson, SnapshotRefused

VERSION = 1


def document(state: State, event: str = "flow:paused") -> dict[str, Json]:
    """The snapshot of a state. `event` is what caused it."""
    prompt_id = next(iter(state.open_prompts), None)
    shown = (state.prompts[prompt_id].shown if prompt_id else None) or {}
    thread = state.thread or {}
    return {
        "version": VERSION,
        "events": SCHEMA_VERSION,
        "sessionId": state.session_id,
        "event": event,
        "state": to_json(state),
        "meta": {
            "promptId": prompt_id,
            "channel": thread.get("channel"),
            "threadTs": thread.get("threadTs"),
            "threadKey": thread.get("key"),
            "promptTs": shown.get("ts"),
        },
    }


def read_document(data: bytes) -> State:
    """The state in a snapshot. Raises `MalformedJournal` when it is none of version 1."""
    try:
        value = decode(data)
        if value["version"] != VERSION:
            raise MalformedJournal(f"snapshot version {value['version']}; this release reads {VERSION}")
        if value.get("events", 1) > SCHEMA_VERSION:
            raise MalformedJournal(f"a snapshot over events of schema {value['events']}")
        return from_json(value["state"])
    except (NotJson, KeyError, TypeError) as error:
        raise MalformedJournal(f"not a snapshot: {error!r}") from error


def fold(loaded: Loaded) -> State | None:
    """The state of a session as the store gave it: the snapshot and the events after it, or all events.

    None where the snapshot cannot be used: it is a cache, which another release wrote in its own way perhaps, and then
    the whole journal has to be folded. Raises `MalformedJournal` for events that do not follow.
    """
    try:
        start = State() if loaded.snapshot is None else read_document(loaded.snapshot)
        if loaded.snapshot is not None:
            _check_place(start, loaded)
        return derive_state((decode_event(row) for row in loaded.events), start)
    except MalformedJournal:
        if loaded.snapshot is None:
            raise
        return None


def _check_place(start: State, loaded: Loaded) -> None:
    if start.seq != loaded.snapshot_seq or start.session_id != loaded.head.session_id:
        raise MalformedJournal("the snapshot belongs to another place")


def export(state: State, journal: list[Event], flow_body: bytes) -> dict[str, Json]:
    """The portable file, without its `mac`."""
    return {
        **document(state),
        "journal": [event.to_wire() for event in journal],
        "flow": decode(flow_body),
    }


def signed_part(file: dict[str, Json]) -> bytes:
    """What the `mac` of an exported file covers: everything else in it, in canonical order."""
    return canonical({name: value for name, value in file.items() if name != "mac"})


def read_export(data: bytes) -> dict[str, Json]:
    """An exported file as a JSON object. Raises `SnapshotRefused` when it is none."""
    try:
        value = decode(data)
    except NotJson as error:
        raise SnapshotRefused(f"This is no snapshot file: {error}") from error
    wanted = ("version", "sessionId", "state", "journal", "flow", "mac")
    if not isinstance(value, dict) or any(name not in value for name in wanted):
        raise SnapshotRefused(f"This is no snapshot file: it needs {', '.join(wanted)}.")
    if value["version"] != VERSION or not isinstance(value["journal"], list):
        raise SnapshotRefused(f"This snapshot has version {value['version']}; this release reads {VERSION}.")
    return value
