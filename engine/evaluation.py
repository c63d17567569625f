"""What expressions see of a session, and a node's configuration and condition evaluated against it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.codec import Json
from engine.errors import ExpressionError, SaysoError
from engine.expressions import Compiled
from engine.expressions import evaluate_condition as _evaluate_condition
from engine.flow import Node
from engine.state import State


class ConfigError(SaysoError):
    """A node's configuration could not be evaluated, or does not fit its type."""

    code = "config"


def evaluate_condition(node: Node, state: State) -> bool:
    """Whether the node's `if` holds; a node without one always runs. Raises `ExpressionError`, naming the node."""
    if node.condition is None:
        return True
    return _evaluate_condition(node.condition, context(node.condition, state), f"node {node.id}: if")


def evaluate_config(node: Node, state: State) -> dict[str, Json]:
    """The node's `with` with every expression evaluated, checked, and defaults filled in. Raises `ConfigError`."""
    try:
        evaluated = node.compiled.evaluate(context(node.compiled, state))
        return node.spec.settle(evaluated)
    except ExpressionError as error:
        raise ExpressionError(f"node {node.id}: {error}") from error
    except SaysoError as error:
        raise ConfigError(f"node {node.id}: with: {error}") from error


def context(compiled: Compiled, state: State) -> dict[str, Any]:
    """The names that an expression may use, with only those nodes that it names: cost is what it uses."""
    names = compiled.names
    if not names:
        return {}
    roots = {path[0] for path in names}
    found: dict[str, Any] = {"inputs": state.inputs or {}}
    if "nodes" in roots:
        found["nodes"] = {name: _output(state, name) for name in _wanted(names, "nodes", state)}
    if "status" in roots:
        found["status"] = {name: _status(state, name) for name in _wanted(names, "status", state)}
    if "errors" in roots:
        found["errors"] = {name: _error(state, name) for name in _wanted(names, "errors", state)}
    if "messages" in roots:
        found["messages"] = [dict(message) for message in state.messages]
    if "session" in roots:
        found["session"] = {"id": state.session_id, "requester": state.actor, "flow": state.flow_name}
    return found


def _wanted(names: Iterable[tuple[str, ...]], root: str, state: State) -> list[str]:
    """The ids named below a root; all of them where an expression computes which one."""
    mine = [path for path in names if path[0] == root]
    if any(len(path) == 1 for path in mine):
        return list(state.nodes)
    return [path[1] for path in mine if path[1] in state.nodes]


def _output(state: State, name: str) -> Json:
    return state.nodes[name].output


def _status(state: State, name: str) -> str:
    return state.nodes[name].status


def _error(state: State, name: str) -> Json:
    return state.nodes[name].error
