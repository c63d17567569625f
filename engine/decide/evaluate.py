"""What expressions see at a place in a session, and a node's configuration and condition evaluated there. Pure.

A node sees the nodes of its own pass, those around it, outwards as far as the flow it belongs to, and no further:
a called flow has inputs and nodes of its own. `item` (under the name that `as` gives it), `index` and `last` are
those of the passes around it, the innermost first. `now` is the time of the step that evaluates, which its events carry:
so what came of it is in the journal, and nobody evaluates it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.flow import Flow, Node
from engine.journal.state import FINALLY, ROOT, Frame, NodeRun, State, scope_of
from engine.language.actors import named
from engine.language.codec import Json
from engine.language.errors import ExpressionError, SaysoError
from engine.language.expressions import Compiled
from engine.language.expressions import evaluate_condition as _evaluate_condition


class ConfigError(SaysoError):
    """A node's configuration could not be evaluated, or does not fit its type."""

    code = "config"


def evaluate_condition(flow: Flow, node: Node, state: State, scope: str, now: str) -> bool:
    """Whether the node's `if` holds; a node without one always runs. Raises `ExpressionError`, naming the node."""
    if node.condition is None:
        return True
    return evaluate_test(node.condition, flow, state, scope, now, f"node {node.id}: if")


def evaluate_test(compiled: Compiled, flow: Flow, state: State, scope: str, now: str, where: str) -> bool:
    """A condition as it stands in a pass. Raises `ExpressionError`, beginning with `where`."""
    return _evaluate_condition(compiled, context(compiled, flow, state, scope, now), where)


def evaluate_config(
    flow: Flow, node: Node, state: State, scope: str, now: str | None, also: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """The node's `with` with every expression evaluated, checked, and defaults filled in; `also` are names that this
    place has beside the usual ones. Raises `ConfigError`."""
    if node.type in flow.absent:
        raise ConfigError(f"node {node.id}: {flow.absent[node.type]}")
    try:
        names = context(node.compiled, flow, state, scope, now) | dict(also or {})
        evaluated = node.compiled.evaluate(names)
        return node.spec.normalize(evaluated)
    except ExpressionError as error:
        raise ExpressionError(f"node {node.id}: {error}") from error
    except SaysoError as error:
        raise ConfigError(f"node {node.id}: with: {error}") from error


def context(compiled: Compiled, flow: Flow, state: State, scope: str, now: str | None) -> dict[str, Any]:
    """The names that an expression may use, with only those nodes that it names: cost is what it uses. Without `now`
    it has no time: what people approve is evaluated twice, and must be the same."""
    names = compiled.names
    if not names:
        return {}
    passes = list(_outwards(state, scope))
    found: dict[str, Any] = {}
    for root in {path[0] for path in names}:
        if root in _PER_NODE:
            wanted = {path[1] for path in names if path[0] == root and len(path) > 1}
            found[root] = _nodes(state, passes, wanted, root)
        elif root in _WHOLE:
            found[root] = _WHOLE[root](state, passes)
        else:
            _variable(found, root, flow, state, passes)
    if ("now",) in names and now is not None:
        found.setdefault("now", now)
    return found


Pass = tuple[str, Frame]


def _outwards(state: State, scope: str) -> Iterator[Pass]:
    """The passes around a place, innermost first, as far as its own flow. What runs at the end sees all of it."""
    while True:
        frame = state.frames[scope]
        yield scope, frame
        if scope == FINALLY:
            yield ROOT, state.frames[ROOT]
        if frame.owner is None or state.containers[frame.owner].kind == "flow":
            return
        scope = scope_of(frame.owner)


def _nodes(state: State, passes: list[Pass], wanted: set[str], root: str) -> dict[str, Json]:
    # A node that nothing led to, or that has not begun, is null: the loader has seen to it that it exists.
    found: dict[str, Json] = dict.fromkeys(wanted)
    for name in wanted:
        for _, frame in passes:
            if name in frame.nodes:
                found[name] = _PER_NODE[root](state.nodes[frame.nodes[name]])
                break
    return found


def named_path(state: State, path: str, name: str) -> str | None:
    """The path of the node that a node at `path` means by this id: in its own pass or around it; None for one that did
    not run."""
    found = (frame.nodes[name] for _, frame in _outwards(state, scope_of(path)) if name in frame.nodes)
    return next(found, None)


def named_node(state: State, path: str, name: str) -> NodeRun | None:
    """The same as a node."""
    found = named_path(state, path, name)
    return None if found is None else state.nodes[found]


def _output(run: NodeRun) -> Json:
    return run.output


def _status(run: NodeRun) -> Json:
    return "failed" if run.status == "failing" else run.status


def _error(run: NodeRun) -> Json:
    return run.error


_PER_NODE = {
    "nodes": _output,
    "status": _status,
    "errors": _error,
}


def _inputs(state: State, passes: list[Pass]) -> Json:
    owner = passes[-1][1].owner
    return (state.inputs if owner is None else state.containers[owner].inputs) or {}


def _messages(state: State, passes: list[Pass]) -> Json:
    return [{**message, "by": named(message["by"])} for message in state.messages]


def _session(state: State, passes: list[Pass]) -> Json:
    return {"id": state.session_id, "requester": named(state.actor), "flow": state.flow_name}


_WHOLE = {"inputs": _inputs, "messages": _messages, "session": _session}


def _variable(found: dict[str, Any], name: str, flow: Flow, state: State, passes: list[Pass]) -> None:
    """`index`, `last`, or the name that a `foreach` gave its item."""
    for _, frame in passes:
        if frame.owner is None:
            return
        container = state.containers[frame.owner]
        if name == "index" and container.kind in ("foreach", "loop"):
            found[name] = frame.order
            return
        if name == "last" and container.kind == "loop":
            found[name] = container.last
            return
        if container.kind == "foreach" and item_name(flow, state, frame.owner) == name:
            found[name] = (container.items or [])[frame.order]
            return


def item_name(flow: Flow, state: State, path: str) -> str | None:
    """What a `foreach` calls its item."""
    return node_at(flow, state, path).as_


def node_at(flow: Flow, state: State, path: str) -> Node:
    """The definition of the node at a path that is under way."""
    frame, run = state.frames[scope_of(path)], state.nodes[path]
    return flow.lists[frame.list_id].nodes[run.position]
