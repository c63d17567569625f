"""Flows made by hypothesis: any nodes in any containers and graphs, with conditions, retries, failures and their
handling, jumps and nodes at the end."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import strategies as st

Spec = dict[str, Any]

PAUSED_WHILE_IT_FAILS = """
flow: generated
inputs: {yes: {type: boolean, default: false}}
nodes:
  - id: n0
    type: parallel
    with: {mode: fail_fast}
    timeout: 30s
    branches:
      l:
        - id: n0_0
          type: shell
          with: {run: [do, x]}
          on_failure:
            - id: n0_0f_0
              type: shell
              with: {run: [do, x]}
              if: "{{ inputs.yes }}"
              on_failure: [{id: n0_0f_0f, type: shell, on_crash: again, with: {run: [do, y]}}]
        - {id: n0_1, type: shell, with: {run: [fail, "2"]}}
      r: [{id: n0r_0, type: shell, with: {run: [do, x]}}]
finally:
  - {id: tidy, type: shell, on_crash: again, with: {run: [do, y]}}
  - {id: end, type: set, with: {x: 1}}
"""
"""Hypothesis found this flow: a person pauses it after one branch has failed, while the other is told to leave."""

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
_CONDITIONS: tuple[Spec, ...] = ({}, {}, {"when": "{{ inputs.yes }}"}, {"when": "{{ not inputs.yes }}"})
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
    kinds = _LEAVES + ("goto",) + (_CONTAINERS * 2 if depth else ())
    found: list[Spec] = []
    for number in range(draw(st.integers(1, 4))):
        kind, node_id = draw(st.sampled_from(kinds)), f"{prefix}{number}"
        if kind == "goto":
            found += _jump(node_id)
            continue
        node = draw(container(kind, node_id, depth - 1)) if kind in _CONTAINERS else _leaf(kind)
        more = draw(extras(kind, node_id, depth))
        if more.get("on_error") == "ask" and kind != "fails":
            node_id = f"skip_{node_id}"  # or it would fail, and be tried again, for ever
        found.append({"id": node_id, **node, **more})
    return found


def _jump(node_id: str) -> list[Spec]:
    """A node that counts its visits, and one that fails at the first of them and leads back to it."""
    times = f"{{{{ 1 if nodes.{node_id}.stdout == '1' else 0 }}}}"
    back = {"type": "shell", "on_error": f"goto:{node_id}", "with": {"run": ["fail", times]}}
    return [
        {"id": node_id, "type": "shell", "with": {"run": ["count", node_id]}},
        {"id": f"{node_id}b", **back},
    ]


@st.composite
def extras(draw: st.DrawFn, kind: str, node_id: str, depth: int) -> Spec:
    """What any node can have beside its `with`."""
    found: Spec = {}
    if draw(st.integers(0, 5)) == 0:
        found["if"] = draw(st.sampled_from(["{{ inputs.yes }}", "{{ not inputs.yes }}"]))
    if draw(st.integers(0, 2)) > 0:
        found["on_error"] = draw(st.sampled_from(["continue", "continue", "ask"]))
    if kind in ("shell", "again", "fails", "http", "foreach", "loop", "parallel") and draw(st.booleans()):
        found["retry"] = {"attempts": draw(st.integers(1, 3)), "delay": "7s"}
    if draw(st.integers(0, 5)) == 0:
        tell = {"id": f"{node_id}f", **_leaf("again")}
        found["on_failure"] = draw(nodes(f"{node_id}f_", 0)) if depth else [tell]
    if kind in _CONTAINERS and draw(st.integers(0, 5)) == 0:
        found["timeout"] = draw(st.sampled_from(["30s", "5m"]))
    return found


@st.composite
def edges(draw: st.DrawFn, among: list[Spec]) -> list[Spec]:
    """Edges between nodes: forward in the order of the list, some with a condition, perhaps one that leads back."""
    ids = [node["id"] for node in among]
    gates = {name: draw(st.sampled_from(["all", "all", "any"])) for name in ids}
    found: list[Spec] = []
    for number, name in enumerate(ids[1:], 1):
        jumps = str(among[number].get("on_error", "")).startswith("goto:")
        sources = {ids[number - 1]} if jumps else draw(st.sets(st.sampled_from(ids[:number]), max_size=2))
        for source in sorted(sources):
            more = {} if jumps else {"gate": gates[name], **draw(st.sampled_from(_CONDITIONS))}
            found.append({"from": source, "to": name, **more})
    if found and draw(st.booleans()):
        edge = draw(st.sampled_from(found))
        back = {"type": "loop", "max_iterations": 1, "when": "{{ true }}"}
        found.append({"from": edge["to"], "to": edge["from"], **back})
    return found


@st.composite
def graph(draw: st.DrawFn, among: list[Spec]) -> Spec:
    """The edges of a list, or none."""
    found = draw(edges(among)) if draw(st.integers(0, 2)) == 0 else []
    return {"edges": found} if found else {}


@st.composite
def container(draw: st.DrawFn, kind: str, node_id: str, depth: int) -> Spec:
    """A container with nodes in it."""
    body = draw(nodes(f"{node_id}_", depth))
    if kind == "foreach":
        items = [1, 2, 3][: draw(st.integers(0, 3))]
        with_: Spec = {"items": items, "concurrency": draw(st.integers(1, 3))}
        return {"type": kind, "with": with_, "body": body, **draw(graph(body))}
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
    top = draw(nodes("n", draw(st.integers(1, 3))))
    document = {"flow": "generated", "inputs": inputs, "nodes": top, **draw(graph(top))}
    if draw(st.integers(0, 2)) == 0:
        document["finally"] = [
            {"id": "tidy", **_leaf("again")},
            {"id": "end", "type": "set", "with": {"x": 1}},
        ]
    return orjson.dumps(document).decode()
