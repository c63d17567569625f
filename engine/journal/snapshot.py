"""Snapshots: the state as one JSON document, a cache of the fold and a portable file. Pure.

v1: `{version, events, sessionId, event, state, meta: {promptId, channel, threadTs, threadKey, promptTs}}`; the exported
file adds `journal` (the events) and `flow` (the pinned text), and `mac`; if conversations have shown files to a model,
also `kept`: their bytes in base64, by digest. A file that follows its session has a line for each later pause,
`{journal, mac}`: the events since, signed with the line before.

`SessionState` is the state of a session as one JSON document. Names are those of the specifications, with our
additions, in camelCase throughout; content from flows, people and services (inputs, outputs, prompts) keeps its own.
`frames` and `containers`, keyed by path, are the truth; `currentNodeId` and `containerStack` (outermost first) only
project the oldest wait. `pendingMessages` are the texts of those `messages` that nothing took yet.

Schema 2. Schema 1, which is still read, had the names of fields below the first level in snake_case, and all messages
under `pendingMessages`, without telling which were still pending.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any, get_args

from immutables import Map
from msgspec import Struct
from msgspec.structs import astuple, replace

from engine.forms.question import Question
from engine.journal.events import SCHEMA_VERSION, Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.queries import agent_of, is_launched
from engine.journal.records import Loaded
from engine.journal.state import (
    COLLECT,
    ROOT,
    UNFINISHED,
    AgentRun,
    Asked,
    ContainerRun,
    Frame,
    NodeRun,
    Spent,
    State,
    scope_of,
)
from engine.language.codec import Json, canonical, decode, decode_signed, encode
from engine.language.errors import MalformedJournal, NotJson, SnapshotRefused
from engine.language.structs import convert

VERSION = 1


def document(state: State, event: str = "flow:paused") -> dict[str, Json]:
    """Return the snapshot of a state. `event` is its cause."""
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
    """Return the state in a snapshot. Raises `MalformedJournal` if it is not one of version 1."""
    try:
        value = decode(data)
        if value["version"] != VERSION:
            raise MalformedJournal(f"snapshot version {value['version']}; this release reads {VERSION}")
        if value["events"] > SCHEMA_VERSION:
            raise MalformedJournal(f"a snapshot over events of schema {value['events']}")
        return from_json(value["state"])
    except (NotJson, KeyError, TypeError) as error:
        raise MalformedJournal(f"not a snapshot: {error!r}") from error


def fold(loaded: Loaded) -> State | None:
    """Return the state of a loaded session: from the snapshot and the events after it, or from all events.

    None if the snapshot cannot be used: it is a cache, perhaps written by another release, and then the whole journal
    has to be folded. Raises `MalformedJournal` for events that do not follow.
    """
    try:
        start = State()
        if loaded.snapshot is not None:
            start = read_document(loaded.snapshot)
            if (start.seq, start.session_id) != (loaded.snapshot_seq, loaded.head.session_id):
                raise MalformedJournal("the snapshot belongs to another place")
        return derive_state((decode_event(row) for row in loaded.events), start)
    except MalformedJournal:
        if loaded.snapshot is None:
            raise
        return None


def export(state: State, journal: list[Event], flow_body: bytes) -> dict[str, Json]:
    """The portable file, without its `mac`."""
    return {**document(state), "journal": [event.to_wire() for event in journal], "flow": decode(flow_body)}


def signed_part(file: dict[str, Json]) -> bytes:
    """Return the bytes signed by the `mac` of an exported file: everything else in it, in canonical order."""
    return canonical({name: value for name, value in file.items() if name not in ("mac", "added")})


def signed_addition(after: str, journal: list[Json]) -> bytes:
    """Return the bytes signed by the `mac` of an added line: its events, and the `mac` of the line before."""
    return canonical({"after": after, "journal": journal})


def events_in(file: dict[str, Json]) -> list[Json]:
    """Return the journal in an exported file, including added lines."""
    return [event for part in (file, *file["added"]) for event in part["journal"]]


def read_export(data: bytes) -> dict[str, Json]:
    """Return an exported file as a JSON object, with its later lines under `added`. Raises `SnapshotRefused` for any
    other file."""
    value, *added = _pieces(data)
    wanted = ("version", "sessionId", "state", "journal", "flow", "mac")
    if not isinstance(value, dict) or any(name not in value for name in wanted):
        raise SnapshotRefused(f"This is not a snapshot file: it needs {', '.join(wanted)}.")
    if value["version"] != VERSION or not isinstance(value["journal"], list):
        raise SnapshotRefused(f"This snapshot has version {value['version']}; this release reads {VERSION}.")
    if any(not isinstance(part, dict) or part.keys() != {"journal", "mac"} for part in added):
        raise SnapshotRefused("This is not a snapshot file: it has additions that sayso does not write.")
    return {**value, "added": added}


def _pieces(data: bytes) -> list[Json]:
    """Return the parts of a file: one document in any layout, or one per line. A last line without an end was cut by a
    crash and is ignored."""
    try:
        return [decode_signed(data)]
    except NotJson as error:
        *whole, _cut = data.split(b"\n")
        if not whole:
            raise SnapshotRefused(f"This is not a snapshot file: {error}") from error
    try:
        return [decode_signed(line) for line in whole]
    except NotJson as error:
        raise SnapshotRefused(f"This is not a snapshot file: {error}") from error


# --- the state as JSON -------------------------------------------------------------------------------------


SCHEMA = 1
"""Version of the document, not of the journal."""


def current_path(state: State) -> str | None:
    """Return the current place of the session: the oldest open wait, else the oldest unfinished node, else None.

    A container does not count while something in it is unfinished.
    """
    waits = [state.prompts[prompt_id] for prompt_id in state.open_prompts]
    if waits:
        return min(waits, key=lambda prompt: (prompt.requested_at, prompt.path)).path
    inside = [path for path in state.active if path not in state.containers]
    runs = [(state.nodes[path].started_at or "", path) for path in inside or state.active]
    return min(runs)[1] if runs else None


def to_json(state: State) -> dict[str, Json]:
    """Return the state as the specifications name it (`SessionState`), with our additions. Outputs appear once.

    Everything is sorted: maps have no order, and equal states must look the same in every process.
    """
    place = current_path(state)
    runs = sorted(state.nodes.items(), key=lambda item: (item[1].position, item[0]))
    run = state.nodes.get(place) if place else None
    # The fields that appear only if they are not empty.
    found = {name: _plain(getattr(state, _NAMES[name])) for name in _SOMETIMES}
    found["spent"] = None if state.spent == Spent() else _spent_json(state.spent)
    found["owed"] = [[list(owed.types), owed.path, owed.id] for owed in state.owed]
    return {
        "schemaVersion": SCHEMA,
        **{wire: getattr(state, _NAMES[wire]) for wire in _ALWAYS},
        "status": state.status,
        "currentNodeId": run.node_id if run else place,
        "currentNodeIndex": run.position if run else state.frames.get(ROOT, Frame()).position,
        "outputs": {
            path: run.output
            for path, run in runs
            if run.status == "completed" and ("/" not in path or agent_of(state, path) is None)
        },
        "nodes": {path: _node_json(run) for path, run in runs},
        "frames": {scope: _frame_json(frame) for scope, frame in sorted(state.frames.items())},
        "containers": {path: _container_json(found) for path, found in sorted(state.containers.items())},
        "containerStack": container_stack(state, place),
        "loopCounters": {
            f"{scope}/{jump}" if scope else jump: number
            for scope, frame in sorted(state.frames.items())
            for jump, number in sorted(frame.loops.items())
        },
        "prompts": {
            key: _asked_json(state.prompts[key])
            for key in sorted(state.prompts, key=lambda key: (state.prompts[key].number or 0, key))
        },
        "timers": {key: _named(timer) for key, timer in sorted(state.timers.items())},
        "messages": list(state.messages),
        "pendingMessages": [text for _, text in state.pending],
        "pendingKeys": [key for key, _ in state.pending],
        "seen": sorted(state.seen),
        **{name: value for name, value in found.items() if value},
    }


_ALWAYS = (
    "sessionId", "parentSessionId", "flowName", "flowDigest", "phase", "outcome", "seq", "createdAt", "updatedAt",
    "actor", "thread", "given", "inputs", "nodeRuns", "promptsAsked", "pausedAt", "pauseReason", "error",
    "finallySkipped",
)  # fmt: skip
"""The fields that are in every document as they are."""

_SOMETIMES = ("flowRevision", "pausing", "lock", "limits", "spent", "conversations", "caps", "grants", "owed")
"""Fields that appear in a document only if they are not empty."""

_NAMES = dict(zip(State.__struct_encode_fields__, State.__struct_fields__, strict=True))


def _named(record: Struct) -> dict[str, Json]:
    """The fields of a record under the names of the document."""
    fields = zip(record.__struct_encode_fields__, astuple(record), strict=True)
    return {name: _plain(value) for name, value in fields}


def _plain(value: Any) -> Json:
    """Convert a value to JSON. Keys are sorted, since a map has no order."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Map):
        return {key: _plain(item) for key, item in sorted(value.items())}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return _named(value) if isinstance(value, Struct) else value


_AS_THEY_ARE = frozenset({str, int, float, bool, dict, list, type(None)})
"""Types of values that are JSON already."""


def container_stack(state: State, place: str | None) -> list[dict[str, Json]]:
    """The containers around a place, outermost first, as the specifications name their parts."""
    stack: list[dict[str, Json]] = []
    scope = scope_of(place) if place else ROOT
    while scope != ROOT and scope in state.frames:
        frame = state.frames[scope]
        owner = frame.owner
        if owner is None:
            break
        container = state.containers[owner]
        items = container.items or []
        stack.insert(
            0,
            {
                "nodeId": container.node_id,
                "path": owner,
                "iterationIndex": frame.order,
                "totalIterations": container.total
                if container.total != COLLECT
                else len(container.keys or []),
                "currentItem": items[frame.order] if frame.order < len(items) else None,
                "childIndex": frame.position,
                "completedIterations": [
                    {**result, "item": items[number] if number < len(items) else None}
                    for number, result in sorted(container.results.items())
                ],
                "partialChildOutputs": {
                    node_id: state.nodes[path].output
                    for node_id, path in frame.nodes.items()
                    if state.nodes[path].status == "completed"
                },
            },
        )
        scope = scope_of(owner)
    return stack


_OWN = tuple(
    (wire, name)
    for wire, name in zip(Asked.__struct_encode_fields__, Asked.__struct_fields__, strict=True)
    if name not in Question.__struct_fields__
)
"""The fields that a question has beside what was asked, each under its name in the document."""


def _asked_json(asked: Asked) -> dict[str, Json]:
    """Return a question, with the part that was asked under `spec`."""
    own = {wire: _plain(getattr(asked, name)) for wire, name in _OWN}
    places = {name: own.pop(name) for name in ("promptId", "path")}
    return {**places, "kind": asked.kind, "status": own.pop("status"), "spec": asked.to_wire(), **own}


def _read_asked(record: dict[str, Json]) -> dict[str, Json]:
    fields = {**record["spec"], **record}
    return {name: value for name, value in fields.items() if name != "spec" and value is not None}


def _frame_json(frame: Frame) -> dict[str, Json]:
    fields = _named(frame)
    if frame.graph is not None:
        sets = {name: sorted(getattr(frame.graph, name)) for name in ("ready", "ended", "again")}
        fields["graph"] = {**fields["graph"], **sets}
    return fields


def _container_json(container: ContainerRun) -> dict[str, Json]:
    results = [container.results[number] for number in sorted(container.results)]
    fields = {**_named(container), "results": results}
    del fields["agent"]
    return fields if container.agent is None else {**fields, "agent": _agent_json(container.agent)}


def _agent_json(agent: AgentRun) -> dict[str, Json]:
    messages = [agent.messages[number] for number in range(len(agent.messages))]
    return {**_named(agent), "messages": messages, "spent": _spent_json(agent.spent)}


def _spent_json(spent: Spent) -> dict[str, Json]:
    """Return the spending, with the tokens of unanswered calls only if there are any."""
    return {name: value for name, value in _named(spent).items() if value or not name.endswith("Tokens")}


def _node_json(run: NodeRun) -> dict[str, Json]:
    named = zip(run.__struct_encode_fields__, astuple(run), strict=True)
    fields = {name: value for name, value in named if value is not None and name != "output"}
    if run.kept is not None:
        fields["kept"] = _agent_json(run.kept)
    return fields


# --- reading -----------------------------------------------------------------------------------------------


def from_json(data: Json) -> State:
    """Return the state of such a document. Raises `MalformedJournal` for one that this release does not write."""
    try:
        if data["schemaVersion"] != SCHEMA:
            raise MalformedJournal(f"snapshot of schema {data['schemaVersion']}; this release reads {SCHEMA}")
        outputs = data["outputs"]
        fields = {
            **{name: data[name] for name in (*_ALWAYS, "frames", "containers", "timers", "seen", "messages")},
            **{name: data[name] for name in _SOMETIMES if name in data},
            "nodes": {path: {**run, "output": outputs.get(path)} for path, run in data["nodes"].items()},
            "prompts": {key: _read_asked(prompt) for key, prompt in data["prompts"].items()},
            "pending": list(zip(data["pendingKeys"], data["pendingMessages"], strict=True)),
        }
        state = convert(fields, State, dec_hook=_map)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedJournal(f"not a session state: {error!r}") from error
    active = [path for path, run in state.nodes.items() if run.status in UNFINISHED]
    launched = [path for path in active if is_launched(state.nodes[path])]
    unanswered = [key for key, prompt in state.prompts.items() if prompt.open]
    return replace(
        state,
        active=Map(dict.fromkeys(active)),
        launched=Map(dict.fromkeys(launched)),
        open_prompts=Map(dict.fromkeys(unanswered)),
    )


def _map(kind: Any, value: Json) -> Map[Any, Any]:
    """A persistent map. A list has the keys of a set, or passes and messages by number; a pass says its own."""
    key, item = get_args(kind)
    if not isinstance(value, list):
        entries: Any = GenericAlias(dict, (key, item))
        return Map(convert(value, entries, dec_hook=_map))
    if item is None:
        return Map(dict.fromkeys(value))
    return Map({entry.get("index", number): entry for number, entry in enumerate(value)})


def to_bytes(state: State) -> bytes:
    """The state as a snapshot row holds it."""
    return encode(to_json(state))


def from_bytes(data: bytes) -> State:
    """The state of a snapshot row. Raises `MalformedJournal`."""
    try:
        return from_json(decode(data))
    except NotJson as error:
        raise MalformedJournal(str(error)) from error
