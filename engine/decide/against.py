"""A recorded run under another text of its flow: the first step that would be different, and every approval that would be
gone or change. Pure.

The recorded events are folded as they are, with their outputs and answers. At each step the new text is asked in the state
of that moment: is the step there, does its condition hold, and with which values would it begin? Up to the first difference
that is what the run would have done; later steps are not compared. Approvals are compared one by one, also after that.
For a run that waits, the plan of a migration says what it would do (`engine.decide.past.plan`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.decide.past import Plan, kept_inputs, plan
from engine.decide.step import evaluate_config, evaluate_test
from engine.flow import Flow, Node
from engine.flow.model import Edge, NodeList
from engine.flow.node import plan_of
from engine.journal import events as ev
from engine.journal.events import Event
from engine.journal.fold import evolve
from engine.journal.queries import agent_of
from engine.journal.state import Asked, State, scope_of
from engine.language import timestamps
from engine.language.codec import Json, encode
from engine.language.errors import SaysoError

_DECIDING = (
    "approvers",
    "required",
    "exclude_requester",
    "veto",
    "covers",
    "valid_for",
    "require_reason",
    "on_reject",
    "on_timeout",
    "editable",
)
"""Fields of an approval that say who decides, about what, and with which effect."""
_MOST = 120


class Compared(NamedTuple):
    """A recorded run under another text. `first` is its first difference, `approvals` those that would be gone or change, and
    `plan` for a run that waits what a migration would do."""

    session_id: str
    standing: str
    first: str | None
    approvals: Sequence[str]
    plan: Plan | None

    @property
    def same(self) -> bool:
        """True if the run would have gone the same way, and continues if it waits."""
        stuck = self.plan is not None and bool(self.plan.problems)
        return self.first is None and not self.approvals and not stuck

    def to_json(self) -> dict[str, Json]:
        """Return the comparison for a program."""
        told: dict[str, Json] = {"session": self.session_id, "status": self.standing, "same": self.same}
        told |= {"first": self.first, "approvals": list(self.approvals)}
        return told | {"plan": None if self.plan is None else self.plan.to_json()}


class _Place(NamedTuple):
    """A node of the recorded text at a path, and its list in both texts."""

    path: str
    was: Node
    here: NodeList
    there: NodeList | None

    @property
    def node(self) -> Node | None:
        """The new text's node with this id."""
        return None if self.there is None else self.there.by_id.get(self.was.id)


def against(events: Sequence[Event], old: Flow, new: Flow) -> Compared:
    """Compare a run, recorded under `old`, with `new`."""
    state, first, approvals = State(), None, list[str]()
    for event in events:
        if first is None:
            first = _difference(state, event, old, new)
        before, state = state, evolve(state, event)
        for asked in state.prompts.values() if state.prompts is not before.prompts else ():
            if asked.prompt_id not in before.prompts:
                approvals += _approval(state, asked, event.timestamp, old, new)
    waits = state.phase in ("waiting", "held")
    return Compared(
        state.session_id, state.standing, first, approvals, plan(old, new, state) if waits else None
    )


def _difference(state: State, event: Event, old: Flow, new: Flow) -> str | None:
    match event:
        case ev.FlowStarted():
            try:
                values, missing = kept_inputs(new, event.input)
            except SaysoError as error:
                return f"its inputs would be refused: {error}"
            if missing:
                return f"the input {missing[0]} would be asked for"
            changed = [name for name in values if name in event.input and values[name] != event.input[name]]
            if changed:
                name = changed[0]
                return (
                    f"the input {name} would be {_short(values[name])} instead of {_short(event.input[name])}"
                )
            if (old.lock and old.lock.raw) != (new.lock and new.lock.raw):
                return f"it would take the lock {_short(new.lock.raw) if new.lock else 'of no name'}"
            return None
        case ev.Start() if event.attempt == 1:
            place = _place(state, event.at, event.own_id, old, new)
            return None if place is None else next(_begun(state, event, place, new), None)
        case ev.NodeSkipped():
            place = _place(state, event.at, event.node_id, old, new)
            return None if place is None else next(_skipped(state, event, place, new), None)
        case ev.Failure() | ev.Completion() if event.path in state.nodes:
            place = _place(state, event.at, state.nodes[event.at].node_id, old, new)
            return None if place is None else next(_ended(state, event, place), None)
    return None


def _place(state: State, path: str, node_id: str, old: Flow, new: Flow) -> _Place | None:
    """Return where a node stands; None for a part of an agent's conversation."""
    frame = state.frames.get(scope_of(path))
    if frame is None or agent_of(state, path) is not None:
        return None
    here = old.lists[frame.list_id]
    was = here.by_id.get(node_id)
    return None if was is None else _Place(path, was, here, new.lists.get(frame.list_id))


# --- steps --------------------------------------------------------------------------------------------------------


def _begun(state: State, event: ev.Start, place: _Place, new: Flow) -> Iterator[str]:
    """Yield the differences at a node that began."""
    path, was, node = place.path, place.was, place.node
    yield from _around(state, place)
    if node is None:
        yield f"{path} would not run: the new version has no such step there"
        return
    if node.type != was.type:
        yield f"{path} would be a step of type {node.type} instead of {was.type}"
        return
    holds = _holds(state, place, node, new, event.timestamp)
    if holds is not True:
        yield (
            f"{path} would be skipped: its `if` is false" if holds is False else f"{path} would fail: {holds}"
        )
    yield from _values(state, event, place, node, new)
    if node.calls != was.calls:
        yield f"{path} would run the flow {node.calls} instead of {was.calls}"


def _values(state: State, event: ev.Start, place: _Place, node: Node, new: Flow) -> Iterator[str]:
    """Yield the fields with which a node would begin otherwise. What is written alike has the same value."""
    was, path = place.was, place.path
    names = [
        name
        for name in {**was.config, **node.config}
        if was.config.get(name) != node.config.get(name) or (name in was.config) != (name in node.config)
    ]
    if not names:
        return
    try:
        config = evaluate_config(new, node, state, scope_of(path), event.timestamp)
    except SaysoError as error:
        yield f"{path} would fail: {error}"
        return
    given = event.input if isinstance(event.input, dict) else {}
    for name in names:
        before, after = given.get(name, was.config.get(name)), config.get(name, node.config.get(name))
        if before != after:
            yield f"{path} would have {name} {_short(after)} instead of {_short(before)}"


def _around(state: State, place: _Place) -> Iterator[str]:
    """Yield steps that would run before this one: new ones, moved ones, and in a graph other edges."""
    path, was, here, there, node = place.path, place.was, place.here, place.there, place.node
    if there is None:
        return
    done = state.frames[scope_of(path)].nodes
    if here.is_graph or there.is_graph:
        if node is not None and _edges(here.incoming[was.id]) != _edges(there.incoming[was.id]):
            yield f"other edges would lead to {path}"
        for added in there.nodes:
            if added.id not in here.by_id and all(
                edge.from_ in done and done[edge.from_] not in state.active
                for edge in there.incoming[added.id]
            ):
                yield f"{added.id} is new and would run beside {path}"
        return
    earlier = [one for one in here.nodes[: was.index] if one.id in there.by_id]
    if was.index and here.nodes[was.index - 1].id not in done:
        return  # it was jumped to: what is passed over runs in neither text
    begin = there.by_id[earlier[-1].id].index + 1 if earlier else 0
    end = len(there.nodes) if node is None else node.index
    for one in there.nodes[begin:end]:
        if one.id not in here.by_id:
            yield f"{one.id} is new and would run before {path}"
        elif one.id not in done and node is not None:
            yield f"{one.id} would run before {path}"


def _edges(edges: Sequence[Edge]) -> set[tuple[str, Json, str]]:
    return {(edge.from_, None if edge.when is None else str(edge.when.raw), edge.gate) for edge in edges}


def _skipped(state: State, event: ev.NodeSkipped, place: _Place, new: Flow) -> Iterator[str]:
    """Yield the difference at a node that was skipped by its own condition."""
    yield from _around(state, place)
    node = place.node
    if node is None or node.if_ == place.was.if_ or place.was.condition is None:
        return
    holds = _holds(state, place, node, new, event.timestamp)
    if holds is not False:
        yield f"{place.path} would run" if holds is True else f"{place.path} would fail: {holds}"


def _ended(state: State, event: ev.Failure | ev.Completion, place: _Place) -> Iterator[str]:
    """Yield what would come at the end of an attempt, where that is other than it was: less time, fewer tries, another way
    after a failure."""
    node, was, run = place.node, place.was, state.nodes[place.path]
    if node is None:
        return
    if node.timeout is not None and node.timeout != was.timeout and run.started_at is not None:
        took = timestamps.seconds_between(run.started_at, event.timestamp)
        if took > node.timeout:
            yield f"{place.path} would have timed out: it took {took:.0f} s"
    if not isinstance(event, ev.Failure):
        return
    tries = 1 if node.retry is None else node.retry.attempts
    if event.result == "retried":
        if tries <= event.attempt:
            yield f"{place.path} would not be retried after {event.attempt} failures"
        return
    if node.on_error != was.on_error:
        yield f"after {place.path} failed: on_error {node.on_error} instead of {was.on_error}"
    if (node.on_failure is None) != (was.on_failure is None):
        runs = "nothing" if node.on_failure is None else "its on_failure"
        yield f"after {place.path} failed {runs} would run"
    if tries > event.attempt and node.retry != was.retry:
        yield f"{place.path} would be retried after {event.attempt} failures"


def _holds(state: State, place: _Place, node: Node, new: Flow, now: str) -> bool | str:
    """Return whether a node's condition holds under the new text; a condition that cannot be evaluated says why."""
    if node.if_ == place.was.if_ or node.condition is None:
        return True
    try:
        return evaluate_test(node.condition, new, state, scope_of(place.path), now, f"node {node.id}: if")
    except SaysoError as error:
        return str(error)


# --- approvals ----------------------------------------------------------------------------------------------------


def _approval(state: State, asked: Asked, now: str, old: Flow, new: Flow) -> Iterator[str]:
    """Yield how an approval would change: that of a node, or of a call of an agent's tool."""
    if asked.tool:
        yield from _call(state, asked.path, old, new)
        return
    run = state.nodes.get(asked.path)
    place = None if run is None else _place(state, asked.path, run.node_id, old, new)
    if place is None or place.was.type != "approval":
        return
    node, path = place.node, place.path
    if node is None or node.type != "approval":
        yield f"the approval {path} would be missing"
        return
    if _holds(state, place, node, new, now) is False:
        yield f"the approval {path} would not be asked: its `if` is false"
        return
    scope = scope_of(path)
    try:
        before = evaluate_config(old, place.was, state, scope, now)
        after = evaluate_config(new, node, state, scope, now)
    except SaysoError as error:
        yield f"the approval {path} would fail: {error}"
        return
    covered = place.there.by_id.get(node.covers or "") if place.there is not None else None
    action = place.here.by_id.get(place.was.covers or "")
    if covered is not None and action is not None and covered.config != action.config:
        yield f"the approval {path} would cover another action of {covered.id}"
    for name in _DECIDING:
        if before.get(name) != after.get(name):
            yield f"the approval {path} would have {name} {_short(after.get(name))} instead of {_short(before.get(name))}"


def _call(state: State, path: str, old: Flow, new: Flow) -> Iterator[str]:
    owner = agent_of(state, path) or ""
    agent, run = state.containers[owner].agent, state.nodes.get(owner)
    place = None if run is None else _place(state, owner, run.node_id, old, new)
    if agent is None or place is None:
        return
    tool = agent.calls[path].name
    rules = [
        [rule for rule in plan_of(node).rules if rule.tool == tool] if node is not None else []
        for node in (place.was, place.node)
    ]
    if not rules[1]:
        yield f"the approval of {tool} by {owner} would be missing"
        return
    asked = [[(one.approvers, one.required, one.exclude_requester) for one in found] for found in rules]
    if asked[0] != asked[1]:
        yield f"the approval of {tool} by {owner} would ask other people"


def _short(value: Json) -> str:
    text = value if isinstance(value, str) else encode(value).decode()
    line = " ".join(text.split())
    return line if len(line) <= _MOST else f"{line[: _MOST - 1]}…"
