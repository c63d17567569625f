"""Flows made by hypothesis: any nodes in any containers, with conditions, retries and failures."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import strategies as st

Spec = dict[str, Any]

_LEAVES = (
    "shell",
    "again",
    "fails",
    "ask",
    "choice",
    "expires",
    "approval",
    "message",
    "wait",
    "set",
    "noop",
    "http",
)
_CONTAINERS = ("foreach", "loop", "parallel", "switch", "flow")


def _leaf(kind: str) -> Spec:
    """A node that holds no others."""
    ask = {"type": "ask", "with": {"message": "How?"}}
    made: dict[str, Spec] = {
        "shell": {"type": "shell", "with": {"run": ["do", "x"]}},
        "again": {"type": "shell", "on_crash": "again", "with": {"run": ["do", "y"]}},
        "fails": {"type": "shell", "with": {"run": ["fail", "2"]}},
        "ask": ask,
        "choice": {"type": "ask", "with": {"message": "Which? -> b", "choices": ["a", "b"]}},
        "expires": {"type": "ask", "with": {"message": "How? -> expire", "timeout": "5m"}},
        "approval": {"type": "approval", "with": {"message": "Go?", "approvers": ["channel"]}},
        "message": {"type": "message", "with": {"text": "Hello"}},
        "wait": {"type": "wait", "with": {"for": "1m"}},
        "set": {"type": "set", "with": {"x": 1}},
        "noop": {"type": "noop"},
        "http": {"type": "http", "with": {"url": "http://e.org"}},
    }
    return dict(made[kind])


@st.composite
def nodes(draw: st.DrawFn, prefix: str, depth: int) -> list[Spec]:
    """A list of nodes, with containers to a depth."""
    kinds = _LEAVES + (_CONTAINERS * 2 if depth else ())
    found = []
    for number in range(draw(st.integers(1, 4))):
        kind, node_id = draw(st.sampled_from(kinds)), f"{prefix}{number}"
        node = draw(container(kind, node_id, depth - 1)) if kind in _CONTAINERS else _leaf(kind)
        found.append({"id": node_id, **node, **draw(extras(kind))})
    return found


@st.composite
def extras(draw: st.DrawFn, kind: str) -> Spec:
    """What any node can have beside its `with`."""
    found: Spec = {}
    if draw(st.integers(0, 5)) == 0:
        found["if"] = draw(st.sampled_from(["{{ inputs.yes }}", "{{ not inputs.yes }}"]))
    if draw(st.integers(0, 2)) > 0:
        found["on_error"] = "continue"
    if kind in ("shell", "again", "fails", "http") and draw(st.booleans()):
        found["retry"] = {"attempts": draw(st.integers(1, 4)), "delay": "7s"}
    return found


@st.composite
def container(draw: st.DrawFn, kind: str, node_id: str, depth: int) -> Spec:
    """A container with nodes in it."""
    body = draw(nodes(f"{node_id}_", depth))
    if kind == "foreach":
        items = [1, 2, 3][: draw(st.integers(0, 3))]
        with_: Spec = {"items": items, "concurrency": draw(st.integers(1, 3))}
        return {"type": kind, "with": with_, "body": body}
    if kind == "loop":
        rounds = draw(st.integers(0, 2))
        return {"type": kind, "with": {"while": f"{{{{ index < {rounds} }}}}"}, "body": body}
    if kind == "parallel":
        mode = draw(st.sampled_from(["fail_fast", "collect"]))
        other = draw(nodes(f"{node_id}r_", depth))
        return {"type": kind, "with": {"mode": mode}, "branches": {"l": body, "r": other}}
    if kind == "switch":
        on = draw(st.sampled_from(["a", "b"]))
        return {
            "type": kind,
            "with": {"on": on},
            "cases": {"a": body},
            "default": [{"id": f"{node_id}d", "type": "noop"}],
        }
    return {"type": "flow", "with": {"flow": "sub", "inputs": {"word": node_id}}}


@st.composite
def texts(draw: st.DrawFn) -> str:
    """The text of a flow (JSON, which is YAML)."""
    inputs = {"yes": {"type": "boolean", "default": draw(st.booleans())}}
    document = {"flow": "generated", "inputs": inputs, "nodes": draw(nodes("n", draw(st.integers(1, 3))))}
    return orjson.dumps(document).decode()
