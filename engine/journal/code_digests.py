"""Code that a flow runs and does not hold: modules of `python` nodes, programs beside the flow file. Pure.

A session pins its flow's text, not the files that its nodes run. What those said is recorded instead, as a digest, when
the flow starts and with every start of such a node; so a change while the session was paused is seen. With
`pin: strict` a person is asked before the new code starts. The digests are computed outside and come in as facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.journal.events import ChildStarted, FlowStarted, NodeStarted
from engine.language.codec import Json
from engine.nodes.types.registry import code_key

if TYPE_CHECKING:
    from engine.journal.state import State

CHANGED = "changed"
"""Why a node was not launched whose code is another than before: a person has to agree."""


def changed(state: State, now: Mapping[str, str], node_type: str, config: Json) -> bool:
    """Whether a node would run other code than the session knows."""
    key = code_key(node_type, config)
    return key is not None and key in now and state.code.get(key, now[key]) != now[key]


def differing(state: State, now: Mapping[str, str]) -> list[str]:
    """What code is another by now than the session knows."""
    return sorted(key for key, digest in now.items() if state.code.get(key, digest) != digest)


def noted_start(state: State, event: NodeStarted | ChildStarted) -> State:
    """The state with what the start of a node says of its code."""
    key = None if event.code_digest is None else code_key(event.node_type, event.input)
    if key is None or event.code_digest is None:
        return state
    is_new = state.code.get(key, event.code_digest) != event.code_digest
    seen = (*state.code_changed, key) if is_new and key not in state.code_changed else state.code_changed
    return replace(state, code=state.code.set(key, event.code_digest), code_changed=seen)


def noted_flow(state: State, event: FlowStarted) -> State:
    """The state with what all code of the flow was when it started."""
    code = state.code
    for key, digest in (event.code or {}).items():
        code = code.set(key, digest)
    return replace(state, code=code)
