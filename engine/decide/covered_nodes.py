"""Approvals that cover a node: what is shown is what runs. Pure.

When the approval is asked, the configuration of the covered node is evaluated as it would be if it were approved now.
People read it as text, and its digest is kept in the prompt. When the covered node starts, it is evaluated again: the
node runs only if the approval was given in this session, for this very visit of the node, for the same digest, and not
too long ago. Secrets are references in both, so their values are not part of the digest; nor are the files of a program
or module.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from engine.decide.step import evaluate_config, node_at
from engine.flow import Flow, Node
from engine.journal.queries import is_rejected
from engine.journal.state import Asked, NodeRun, State, scope_of, visit_path
from engine.language import timestamps
from engine.language.codec import Json, canonical
from engine.language.errors import SaysoError
from engine.language.timestamps import format_duration
from engine.nodes.types.preview import action_text


class NotApproved(SaysoError):
    """A node did not run because its action differs from the approved one; the message names the difference."""

    code = "not_approved"


def digest(kind: str, config: Json) -> str:
    """Return the SHA-256, in hexadecimal, of a node's type and evaluated configuration."""
    return hashlib.sha256(canonical({"type": kind, "with": config})).hexdigest()


def foreseen(flow: Flow, state: State, path: str, values: Mapping[str, Json]) -> dict[str, Json] | None:
    """Return what would run if the approval at `path` were given with these values; None if it covers nothing.

    Raises `ConfigError` and `ExpressionError` where the covered node could not run with them.
    """
    gate, run, scope = node_at(flow, state, path), state.nodes[path], scope_of(path)
    if gate.covers is None:
        return None
    frame = state.frames[scope]
    node = flow.lists[frame.list_id].by_id[gate.covers]
    output: dict[str, Json] = {"decision": "approve", "values": dict(values)}
    imagined = replace(state, nodes=state.nodes.set(path, replace(run, status="completed", output=output)))
    config = evaluate_config(flow, node, imagined, scope, None)
    return {
        "nodeId": node.id,
        "path": visit_path(frame, scope, node.id),
        "sessionId": state.session_id,
        "type": node.type,
        "text": action_text(node.type, config),
        "digest": digest(node.type, config),
        "validSeconds": run.input["valid_for"],
    }


class _Gate(NamedTuple):
    """An approval that covers a node, with its run and its prompt as far as there are any."""

    node_id: str
    run: NodeRun | None
    prompt: Asked | None


def _gates(flow: Flow, state: State, node: Node, path: str) -> list[_Gate]:
    guards = flow.lists[node.list_id].guards.get(node.id)
    if guards is None:
        return []
    frame, found = state.frames[scope_of(path)], []
    for gate_id in guards:
        run = state.nodes.get(frame.nodes.get(gate_id, ""))
        prompt = None if run is None or run.prompt_id is None else state.prompts.get(run.prompt_id)
        found.append(_Gate(gate_id, run, prompt))
    return found


def declined(flow: Flow, state: State, node: Node, path: str) -> str | None:
    """Why a covered node is skipped: an approval that covers it was rejected, or itself skipped. Else None.

    Raises `NotApproved` where an approval has said neither yes nor no.
    """
    for gate in _gates(flow, state, node, path):
        if gate.run is not None and gate.run.status == "skipped":
            return f"`{gate.node_id}` was skipped, so nobody approved it"
        if gate.run is not None and is_rejected(gate.run):
            return f"it was rejected at `{gate.node_id}`"
        if _decision(gate.run) != "approve":
            raise NotApproved(f"node {node.id} did not run: {_unsaid(gate)}")
    return None


def _unsaid(gate: _Gate) -> str:
    return f"`{gate.node_id}` must approve it first, and has not."


def _decision(run: NodeRun | None) -> Json:
    if run is None or run.status != "completed" or not isinstance(run.output, dict):
        return None
    return run.output.get("decision")


def enforce(flow: Flow, state: State, node: Node, path: str, config: Json, now: str) -> None:
    """Raise `NotApproved` unless every approval that covers this node approved exactly this, for now."""
    for gate in _gates(flow, state, node, path):
        problem = _problem(gate, state, node, path, config, now)
        if problem is not None:
            raise NotApproved(f"node {node.id} did not run: {problem}")


def _problem(gate: _Gate, state: State, node: Node, path: str, config: Json, now: str) -> str | None:
    name, prompt = f"`{gate.node_id}`", gate.prompt
    if _decision(gate.run) != "approve" or prompt is None or not prompt.is_approval or prompt.at is None:
        return _unsaid(gate)
    shown = prompt.covers or {}
    if shown.get("sessionId") != state.session_id:
        return f"{name} approved it in session {shown.get('sessionId')}; a copy needs its own approval."
    if shown.get("path") != path:
        return f"{name} approved {shown.get('path')}, and this is {path}."
    if shown.get("digest") != digest(node.type, config):
        return f"{name} did not approve what it was about to do. Ask for a new approval."
    valid = float(shown.get("validSeconds") or 0)
    if timestamps.after(prompt.at, valid) < now:
        span = format_duration(valid)
        return f"{name} approved it at {timestamps.told(prompt.at)}; that was valid for {span}. Ask for a new approval."
    return None
