"""`SessionState`: the state of a session as one JSON document, and back.

Names are those of the specifications, with what they forgot, in camelCase throughout; what flows, people and services
wrote (inputs, outputs, prompts) keeps its own. `frames` and `containers`, keyed by path, are the truth; `currentNodeId`
and `containerStack` (outermost first) only project the oldest wait. `pendingMessages` are the texts of those `messages`
that nothing took yet.

Schema 2. Schema 1, which is still read, had the names of fields below the first level in snake_case, and all messages
under `pendingMessages`; nothing in it says which of them were still pending.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from immutables import Map

from engine.journal.folds.agents import agent_of
from engine.journal.state import (
    COLLECT,
    ROOT,
    AgentRun,
    Call,
    ContainerRun,
    Frame,
    Graph,
    LockRun,
    NodeRun,
    Owed,
    PromptRun,
    Spent,
    State,
    TimerRun,
    scope_of,
)
from engine.journal.state import UNFINISHED as UNFINISHED
from engine.language.codec import Json, decode, encode
from engine.language.errors import MalformedJournal, NotJson

SCHEMA = 2
"""Of the document, not of the journal."""

_READ = (1, 2)


def current_path(state: State) -> str | None:
    """Where the session stands: the oldest open wait, else the oldest unfinished node, else None.

    A container is not where anything stands as long as something in it is unfinished.
    """
    waits = [state.prompts[prompt_id] for prompt_id in state.open_prompts]
    if waits:
        return min(waits, key=lambda prompt: (prompt.requested_at, prompt.path)).path
    inside = [path for path in state.active if path not in state.containers]
    runs = [(state.nodes[path].started_at or "", path) for path in inside or state.active]
    return min(runs)[1] if runs else None


def to_json(state: State) -> dict[str, Json]:
    """The state as the specifications name it (`SessionState`), with what they forgot. Outputs stand once.

    Everything is in an order of its own: maps have none, and equal states shall look the same in every process.
    """
    place = current_path(state)
    runs = sorted(state.nodes.items(), key=lambda item: (item[1].position, item[0]))
    run = state.nodes.get(place) if place else None
    return {
        "schemaVersion": SCHEMA,
        **{wire: getattr(state, name) for wire, name in _PLAIN.items()},
        "status": state.status,
        "currentNodeId": run.node_id if run else place,
        "currentNodeIndex": run.position if run else state.frames.get(ROOT, Frame()).position,
        "outputs": {
            path: run.output
            for path, run in runs
            if run.status == "completed" and agent_of(state, path) is None
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
        "prompts": {key: _named(prompt) for key, prompt in sorted(state.prompts.items(), key=_by_number)},
        "timers": {key: _named(timer) for key, timer in sorted(state.timers.items())},
        "messages": list(state.messages),
        "pendingMessages": [text for _, text in state.pending],
        "pendingKeys": [key for key, _ in state.pending],
        "seen": sorted(state.seen),
        **_sometimes_json(state),
    }


def _sometimes_json(state: State) -> dict[str, Json]:
    """What is there only where there is any of it."""
    found: dict[str, Json] = {}
    if state.code:
        found |= {"code": dict(sorted(state.code.items())), "codeChanged": list(state.code_changed)}
    if state.pausing is not None:
        found["pausing"] = state.pausing
    if state.lock is not None:
        found["lock"] = _named(state.lock)
    if state.limits:
        found["limits"] = list(state.limits)
    if state.spent != Spent():
        found["spent"] = _spent_json(state.spent)
    if state.conversations:
        found["conversations"] = {path: list(said) for path, said in sorted(state.conversations.items())}
    if state.caps:
        found["caps"] = state.caps
    if state.owed:
        found["owed"] = [[list(owed.types), owed.path, owed.id] for owed in state.owed]
    return found


def _named(value: Any) -> dict[str, Json]:
    """The fields of a named tuple under the names of the document."""
    return {_camel(name): field for name, field in value._asdict().items()}


def _fields(data: Mapping[str, Json]) -> dict[str, Json]:
    """The same fields by the names of the named tuple, also out of a document of schema 1."""
    return {_snake(name): field for name, field in data.items()}


@lru_cache(256)
def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


@lru_cache(256)
def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda match: "_" + match[0].lower(), name)


_AS_IT_IS = (
    "session_id", "parent_session_id", "flow_name", "flow_digest", "phase", "outcome", "seq", "created_at", "updated_at",
    "actor", "thread", "given", "inputs", "node_runs", "prompts_asked", "paused_at", "pause_reason", "error",
    "finally_skipped",
)  # fmt: skip
_PLAIN = {_camel(name): name for name in _AS_IT_IS}
"""The fields that stand in the document as they are, by their names there."""


def _by_number(item: tuple[str, PromptRun]) -> tuple[int, str]:
    return item[1].spec.get("number") or 0, item[0]


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


def _frame_json(frame: Frame) -> dict[str, Json]:
    graph = frame.graph
    return {
        **_named(frame),
        "nodes": dict(sorted(frame.nodes.items())),
        "jumps": [list(jump) for jump in frame.jumps],
        "loops": dict(sorted(frame.loops.items())),
        "graph": graph
        and {
            "ready": sorted(graph.ready),
            "ended": sorted(graph.ended),
            "gates": {node_id: list(gate) for node_id, gate in sorted(graph.gates.items())},
            "edges": dict(sorted(graph.edges.items())),
            "again": sorted(graph.again),
        },
    }


def _read_frame(data: dict[str, Json]) -> Frame:
    graph = data["graph"]
    return Frame(
        **{
            **_fields(data),
            "nodes": Map(data["nodes"]),
            "jumps": tuple((source, target) for source, target in data["jumps"]),
            "loops": Map(data["loops"]),
            "graph": graph
            and Graph(
                ready=Map(dict.fromkeys(graph["ready"])),
                ended=Map(dict.fromkeys(graph["ended"])),
                gates=Map({node_id: (known, yes) for node_id, (known, yes) in graph["gates"].items()}),
                edges=Map(graph["edges"]),
                again=Map(dict.fromkeys(graph["again"])),
            ),
        }
    )


def _container_json(container: ContainerRun) -> dict[str, Json]:
    results = [container.results[number] for number in sorted(container.results)]
    fields = {**_named(container), "results": results}
    del fields["agent"]
    return fields if container.agent is None else {**fields, "agent": _agent_json(container.agent)}


def _agent_json(agent: AgentRun) -> dict[str, Json]:
    return {
        **_named(agent),
        "lists": list(agent.lists),
        "messages": [agent.messages[number] for number in range(len(agent.messages))],
        "pending": list(agent.pending),
        "heard": list(agent.heard),
        "calls": {path: _named(call) for path, call in sorted(agent.calls.items())},
        "order": list(agent.order),
        "weighed": list(agent.weighed),
        "results": dict(sorted(agent.results.items())),
        "spent": _spent_json(agent.spent),
    }


def _spent_json(spent: Spent) -> dict[str, Json]:
    """Tokens of calls that have no answer are there only where there are any."""
    return {name: value for name, value in _named(spent).items() if value or not name.endswith("Tokens")}


def _read_agent(data: dict[str, Json]) -> AgentRun:
    return AgentRun(
        **{
            **_fields(data),
            "lists": (data["lists"][0], data["lists"][1]),
            "messages": Map(enumerate(data["messages"])),
            "pending": tuple(data["pending"]),
            "heard": tuple(data["heard"]),
            "calls": Map({path: Call(**_fields(call)) for path, call in data["calls"].items()}),
            "order": tuple(data["order"]),
            "weighed": tuple(data["weighed"]),
            "results": Map(data["results"]),
            "spent": Spent(**_fields(data["spent"])),
        }
    )


def _read_container(data: dict[str, Json]) -> ContainerRun:
    results = Map({result["index"]: result for result in data["results"]})
    agent = _read_agent(data["agent"]) if "agent" in data else None
    return ContainerRun(**{**_fields(data), "results": results, "agent": agent})


def _read_prompt(data: dict[str, Json]) -> PromptRun:
    lists = {name: tuple(data.get(name) or ()) for name in ("votes", "escalated")}
    return PromptRun(**{**_fields(data), **lists})


def _read_messages(data: dict[str, Json]) -> dict[str, Any]:
    if data["schemaVersion"] == 1:
        return {"messages": tuple(data["pendingMessages"])}
    pending = tuple(zip(data["pendingKeys"], data["pendingMessages"], strict=True))
    return {"messages": tuple(data["messages"]), "pending": pending}


def _node_json(run: NodeRun) -> dict[str, Json]:
    fields = _named(run)
    del fields["output"]
    if run.kept is not None:
        fields["kept"] = _agent_json(run.kept)
    return {name: value for name, value in fields.items() if value is not None}


def _read_node(data: dict[str, Json], output: Json) -> NodeRun:
    kept = _read_agent(data["kept"]) if "kept" in data else None
    return NodeRun(**{**_fields(data), "output": output, "kept": kept})


def from_json(data: Json) -> State:
    """The state of such a document. Raises `MalformedJournal` when it is none that this release writes."""
    try:
        if data["schemaVersion"] not in _READ:
            raise MalformedJournal(
                f"snapshot of schema {data['schemaVersion']}; this release reads up to {SCHEMA}"
            )
        outputs = data["outputs"]
        nodes = Map({path: _read_node(run, outputs.get(path)) for path, run in data["nodes"].items()})
        prompts = Map({key: _read_prompt(prompt) for key, prompt in data["prompts"].items()})
        return State(
            **{name: data[wire] for wire, name in _PLAIN.items()},
            nodes=nodes,
            active=Map({path: None for path, run in nodes.items() if run.status in UNFINISHED}),
            frames=Map({scope: _read_frame(frame) for scope, frame in data["frames"].items()}),
            containers=Map({path: _read_container(found) for path, found in data["containers"].items()}),
            prompts=prompts,
            open_prompts=Map({key: None for key, prompt in prompts.items() if prompt.open}),
            timers=Map({key: TimerRun(**_fields(timer)) for key, timer in data["timers"].items()}),
            **_read_messages(data),
            seen=Map(dict.fromkeys(data["seen"])),
            limits=tuple(data.get("limits", ())),
            lock=LockRun(**_fields(data["lock"])) if "lock" in data else None,
            pausing=data.get("pausing"),
            code=Map(data.get("code", {})),
            code_changed=tuple(data.get("codeChanged", ())),
            spent=Spent(**_fields(data.get("spent", {}))),
            conversations=Map({path: tuple(said) for path, said in data.get("conversations", {}).items()}),
            caps=data.get("caps", {}),
            owed=tuple(Owed(tuple(types), path, id_) for types, path, id_ in data.get("owed", ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedJournal(f"not a session state: {error!r}") from error


def to_bytes(state: State) -> bytes:
    """The state as a snapshot row holds it."""
    return encode(to_json(state))


def from_bytes(data: bytes) -> State:
    """The state of a snapshot row. Raises `MalformedJournal`."""
    try:
        return from_json(decode(data))
    except NotJson as error:
        raise MalformedJournal(str(error)) from error
