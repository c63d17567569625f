"""Whether a paused session can go on with another text of its flow, and what that changes in its state. Pure.

Completed nodes keep their outcomes, also those that the new text does not have. What is under way must stand in the
new text, in the same list and with the same type. In a list, the session goes on behind what has had its outcome: a
node that the new text has before that place is not run any more. Lists with edges must have the same nodes and edges,
and a called flow that is under way the inputs that it was called with.

A node that was not launched because its type cannot be used here is under way in name only: it begins as what the new
text has in its place, or is left out where that has nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.flow import Flow, coerce_inputs
from engine.flow.model import NodeList
from engine.journal.events import Event, FlowMigrated, FlowResumed, NodeSkipped, PromptCancelled
from engine.journal.fold import evolve
from engine.journal.queries import open_prompt_at
from engine.journal.state import Frame, NodeRun, State, scope_of
from engine.language.actors import Actor
from engine.language.codec import Json, copy
from engine.language.errors import InvalidInputs, SessionEnded, SessionError, SessionRunning
from engine.nodes.types.registry import MISSING


class MigrationRefused(SessionError):
    """The session cannot go on with the new text; says each reason."""

    code = "migration_refused"


@dataclass
class Plan:
    """What a migration would do. `problems` stand against it, each in a sentence.

    `waits` are the paths that wait, with what the new text has there. `gone` are nodes with an outcome that the new
    text does not have, `passed_over` new nodes that stand before the place where the session is. Of the nodes that waited
    for a type that is not to be had, `anew` begin as what the new text has there, `left_out` are not in it.
    """

    problems: list[str] = field(default_factory=list)
    waits: dict[str, str] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    anew: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    inputs: dict[str, Json] | None = None
    frames: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """The plan for a machine."""
        return {
            "possible": not self.problems,
            "problems": self.problems,
            "waits": self.waits,
            "gone": self.gone,
            "passedOver": self.passed_over,
            "anew": self.anew,
            "leftOut": self.left_out,
        }


def plan(old: Flow, new: Flow, state: State) -> Plan:
    """What it would mean for this session to go on with `new` in place of `old`."""
    made = Plan()
    if new.digest != old.digest:
        made.problems += new.absent.values()
    _plan_inputs(made, old, new, state)
    for scope in sorted(state.frames):
        frame = state.frames[scope]
        if _is_talk(frame, state):
            continue
        there = new.lists.get(frame.list_id)
        if there is None:
            made.problems.append(f"{scope or 'the flow'}: the new text has no such list of nodes")
            continue
        _plan_frame(made, scope, frame, state, (old.lists[frame.list_id], there))
    _plan_calls(made, new, state)
    _plan_agents(made, old, new, state)
    return made


def plan_or_refuse(old: Flow, new: Flow, state: State) -> Plan:
    """The plan of a migration that can be carried out. Raises `SessionEnded`, `SessionRunning`, `MigrationRefused`."""
    if state.ended or state.phase == "finalizing":
        raise SessionEnded(f"Session {state.session_id} is {state.status}; it has nothing left to run.")
    if state.phase not in ("waiting", "held"):
        raise SessionRunning(f"Session {state.session_id} is running; pause it first (sayso sessions pause).")
    made = plan(old, new, state)
    if made.problems:
        raise MigrationRefused(
            f"Session {state.session_id} cannot go on with this text: {'; '.join(made.problems)}."
        )
    return made


def events(made: Plan, state: State, new: Flow, actor: Actor, now: str) -> tuple[list[Event], State]:
    """What is journaled of a migration, and the state after it."""
    written: list[Event] = []

    def add(kind: Callable[..., Event], **fields: Any) -> None:
        nonlocal state
        written.append(kind(seq=state.seq + 1, timestamp=now, **fields))
        state = evolve(state, written[-1])

    if state.phase == "waiting" and (made.anew or made.left_out):
        add(FlowResumed, injected_messages=0)
    for path in (*made.anew, *made.left_out):
        prompt = open_prompt_at(state, path)
        if prompt is not None:
            reason = "the session goes on with another text"
            add(PromptCancelled, path=path, prompt_id=prompt.prompt_id, reason=reason)
    for path in made.left_out:
        run, reason = state.nodes[path], "the new text of the flow does not have it"
        add(NodeSkipped, path=path, node_id=run.node_id, node_type=run.type, reason=reason)
    places = {"frames": made.frames, "nodes": made.nodes, "anew": made.anew or None}
    add(FlowMigrated, flow_digest=new.digest, actor=actor.record(), input=made.inputs, **places)
    return written, state


def _plan_inputs(made: Plan, old: Flow, new: Flow, state: State) -> None:
    asked = [state.prompts[key] for key in state.open_prompts if state.prompts[key].kind == "input"]
    for prompt in asked:
        name = prompt.input_name
        here = new.inputs.get(name)
        if here is None or here.type != old.inputs[name].type:
            made.problems.append(
                f"{prompt.path}: the new text has no such input of type {old.inputs[name].type}"
            )
        made.waits[prompt.path] = "input"
    if state.inputs is None:
        return
    kept = {name: value for name, value in state.inputs.items() if name in new.inputs}
    try:
        values, missing = coerce_inputs(new, kept)
    except InvalidInputs as error:
        made.problems.append(f"inputs: {error}")
        return
    made.problems += [
        f"inputs: the new text needs `{name}`, which this session was not given" for name in missing
    ]
    made.inputs = copy(values)


def _plan_frame(made: Plan, scope: str, frame: Frame, state: State, lists: tuple[NodeList, NodeList]) -> None:
    before, after = lists
    places = {node.id: node.index for node in after.nodes}
    done: list[int] = []
    active: list[int] = []
    for node_id, path in sorted(frame.nodes.items()):
        run = state.nodes[path]
        if path in state.active and run.status == "interrupted" and run.reason == MISSING:
            (made.anew if node_id in places else made.left_out).append(path)
            active += [places[node_id]] if node_id in places else []
            made.nodes |= {path: places[node_id]} if node_id in places else {}
        elif path in state.active:
            said = _under_way(path, run.type, node_id, after)
            made.problems += said
            if not said:
                active.append(places[node_id])
                made.nodes[path] = places[node_id]
            made.problems += _approves_less(path, run, state, after)
            if path not in state.containers:
                made.waits[path] = run.type if not said else "missing"
        elif node_id in places:
            made.problems += _approves_less(path, run, state, after)
            done.append(places[node_id])
            made.nodes[path] = places[node_id]
        else:
            made.gone.append(path)
    if before.is_graph or after.is_graph:
        if before.is_graph != after.is_graph or [n.id for n in before.nodes] != [n.id for n in after.nodes]:
            where = scope or "the flow"
            made.problems.append(f"{where}: a list with edges must have the same nodes in the new text")
        elif _edges(before) != _edges(after):
            where = scope or "the flow"
            made.problems.append(
                f"{where}: its nodes are under way, and other edges lead from one to the other in the new text"
            )
        return
    position = min(active) if active else max(done, default=-1) + 1
    late = [after.nodes[place].id for place in done if active and place > position]
    if late:
        made.problems.append(f"{scope or 'the flow'}: {', '.join(late)} is done and would come again")
    made.frames[scope] = position
    made.passed_over += [
        f"{scope}/{node.id}" if scope else node.id
        for node in after.nodes[:position]
        if node.id not in frame.nodes
    ]


def _edges(nodes: NodeList) -> list[tuple[str, str, str, int | None, str]]:
    """What leads where; conditions may be others, as long as they were not asked yet."""
    return sorted((edge.from_, edge.to, edge.type, edge.max_iterations, edge.gate) for edge in nodes.edges)


def _plan_calls(made: Plan, new: Flow, state: State) -> None:
    """A called flow that is under way has its inputs already: the new text of it can have no others."""
    for path, container in sorted(state.containers.items()):
        if container.kind != "flow" or path not in state.nodes:
            continue
        there = new.lists.get(state.frames[scope_of(path)].list_id)
        node = None if there is None else there.by_id.get(state.nodes[path].node_id)
        called = None if node is None or node.calls is None else new.flows.get(node.calls, new)
        lacking = (
            [] if called is None else [name for name in called.inputs if name not in (container.inputs or {})]
        )
        if lacking:
            names = ", ".join(f"`{name}`" for name in lacking)
            made.problems.append(f"{path}: is under way, and the flow that it calls has new inputs: {names}")


def _is_talk(frame: Frame, state: State) -> bool:
    """Whether a pass is part of a conversation: what stands in it is no node of the file."""
    container = state.containers.get(frame.owner or "")
    return container is not None and container.kind == "agent"


def _plan_agents(made: Plan, old: Flow, new: Flow, state: State) -> None:
    """A conversation that is under way goes on with the tools that it has: the model was told of them, and what it asked
    for refers to them by their place."""
    for path, container in sorted(state.containers.items()):
        if container.kind != "agent" or path not in state.nodes:
            continue
        list_id = state.frames[scope_of(path)].list_id
        before = old.lists[list_id].by_id[container.node_id].agent
        there = new.lists[list_id].by_id.get(container.node_id) if list_id in new.lists else None
        # Where it is no agent any more, that is a problem already.
        if before is None or there is None or there.agent is None:
            continue
        tools = [
            [(tool.name, tool.kind, tool.node.type) for tool in plan.tools] for plan in (before, there.agent)
        ]
        if tools[0] != tools[1]:
            made.problems.append(f"{path}: is under way, and the agent has other tools in the new text")
        made.waits.setdefault(path, "agent")


def _approves_less(path: str, run: NodeRun, state: State, after: NodeList) -> list[str]:
    """An approval that covers a node covers it in the new text too: what people were shown is what may run."""
    prompt = state.prompts.get(run.prompt_id or "")
    covers = None if prompt is None else prompt.covers
    here = after.by_id.get(run.node_id)
    if not covers or here is None or here.covers == covers["nodeId"] or covers["path"] in state.nodes:
        return []
    return [f"{path}: approves what `{covers['nodeId']}` does, and the new text does not say so"]


def _under_way(path: str, kind: str, node_id: str, after: NodeList) -> list[str]:
    node = after.by_id.get(node_id)
    if node is None:
        return [f"{path}: is under way, and the new text does not have it"]
    if node.type != kind:
        return [f"{path}: is under way as {kind}, and the new text has {node.type} there"]
    return []


def lines(made: Plan) -> Iterator[str]:
    """The plan in words."""
    for path, kind in made.waits.items():
        yield f"waits at {path}: " + (
            "not in the new text" if kind == "missing" else f"{kind}, in the new text too"
        )
    for path in made.gone:
        yield f"{path} is done and not in the new text; its outcome is kept"
    for path in made.anew:
        yield f"{path} could not run for want of its node type; it begins as what the new text has there"
    for path in made.left_out:
        yield f"{path} could not run for want of its node type, and is not in the new text; it is left out"
    for path in made.passed_over:
        yield f"{path} is new and stands before the place where the session is; it will not run"
    for problem in made.problems:
        yield f"cannot: {problem}"
