"""Flows with too much of everything, for property tests: texts, labels, fields, options, nodes, depth, errors."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import strategies as st

from tests.support.forms import written_forms

Json = dict[str, Any]

_PIECES = ("x", "word ", "<&>", "`*_~", "é", "👩‍👩‍👧", "\u202e", '"\\', "a\nb\n", "\t", "ß", "> ", "# h\n", "- i\n", "<!channel>", "https://e.example/ ")  # fmt: skip
_SIZES = (1, 7, 25, 75, 76, 150, 151, 255, 300, 2_000, 2_001, 3_000, 3_001)
_LONG = (4_001, 12_001)


def texts(most: int = 14_000) -> st.SearchStrategy[str]:
    """Texts of all lengths around the limits, of characters that count in different ways."""
    sizes = st.sampled_from([size for size in (*_SIZES, *_LONG) if size <= most])
    repeated = st.tuples(st.sampled_from(_PIECES), sizes).map(lambda made: (made[0] * made[1])[: made[1]])
    mixed = st.tuples(repeated, repeated).map(lambda pair: f"{pair[0]} {pair[1]}"[:most])
    return st.one_of(repeated, mixed).map(_sound)


def _sound(text: str) -> str:
    """A text that says something, and that is not an expression."""
    return text if text.strip() else f"{text}."


def names(most: int = 300) -> st.SearchStrategy[str]:
    """Texts on one line."""
    return texts(most).map(lambda text: " ".join(text.split()) or "n")


@st.composite
def ask(draw: st.DrawFn, node_id: str) -> Json:
    """A question for words, one of some choices, or a form."""
    given: Json = {"message": draw(texts()), "who": ["channel"]}
    kind = draw(st.sampled_from(["text", "choices", "form"]))
    if kind == "choices":
        labels = draw(
            st.lists(names(150), min_size=2, max_size=draw(st.sampled_from([3, 26, 120])), unique=True)
        )
        given["choices"] = labels
    if kind == "form":
        given["form"] = draw(written_forms(most=draw(st.sampled_from([1, 4, 14]))))
    return {"id": node_id, "type": "ask", "name": draw(names()), "with": {**given, **draw(clocks())}}


@st.composite
def clocks(draw: st.DrawFn) -> Json:
    """Reminders and escalations."""
    found: Json = draw(
        st.sampled_from(
            [
                {},
                {"remind_every": "10m"},
                {
                    "escalate": [{"after": "15m", "to": ["#C0LOCALREL", "@sre", "dm:ben@example.com"]}],
                    "timeout": "2h",
                },
            ]
        )
    )
    return found


@st.composite
def gate(draw: st.DrawFn, node_id: str) -> list[Json]:
    """An approval with proposed values, which covers a command."""
    form: Json = {
        "properties": {
            "note": {
                "type": "string",
                "title": draw(names(150)),
                "default": draw(texts(3_000)).strip() or "x",
            },
            "size": {"type": "integer", "title": draw(names(150)), "default": 3},
        }
    }
    given: Json = {
        "message": draw(texts()),
        "approvers": ["@sre", "cleo@example.com", "channel"],
        "required": 2,
        "veto": "majority",
        "form": form,
        "editable": ["size", "note"],
        "covers": f"{node_id}_run",
        "approve_label": "A " + draw(names(73)),
        "reject_label": "R " + draw(names(73)),
        "require_reason": draw(st.booleans()),
        **draw(clocks()),
    }
    run: Json = {"run": ["echo", draw(texts()), f"{{{{ nodes.{node_id}['values'].note }}}}"]}
    return [
        {"id": node_id, "type": "approval", "name": draw(names()), "with": given},
        {"id": f"{node_id}_run", "type": "shell", "on_error": "ask", "name": draw(names()), "with": run},
    ]


@st.composite
def message(draw: st.DrawFn, node_id: str) -> Json:
    """A message with a table, fields, files."""
    given: Json = {draw(st.sampled_from(["text", "markdown"])): draw(texts())}
    if draw(st.booleans()):
        columns = draw(st.lists(names(), min_size=1, max_size=20, unique=True))
        row = [draw(names()) for _ in columns]
        given["table"] = {"columns": columns, "rows": [row] * draw(st.sampled_from([1, 99, 101]))}
    if draw(st.booleans()):
        given["fields"] = [{"title": draw(names()), "value": draw(texts(3_001))}] * draw(
            st.sampled_from([1, 10, 30])
        )
    if draw(st.booleans()):
        given["files"] = [{"name": draw(names()), "content": draw(texts()), "title": draw(names())}]
    to = draw(st.sampled_from([{}, {}, {"to": "#releases"}, {"to": "dm:requester"}, {"ephemeral_to": "requester"}, {"broadcast": True}]))  # fmt: skip
    return {"id": node_id, "type": "message", "name": draw(names()), "with": {**given, **to}}


@st.composite
def part(draw: st.DrawFn, node_id: str, depth: int = 0) -> list[Json]:
    """One or two nodes that show something."""
    kinds = ["ask", "gate", "message", "many", "broken"] + (
        ["foreach", "parallel", "loop"] if depth < 2 else []
    )
    match draw(st.sampled_from(kinds)):
        case "ask":
            return [draw(ask(node_id))]
        case "gate":
            return draw(gate(node_id))
        case "message":
            return [draw(message(node_id))]
        case "many":
            count = draw(st.sampled_from([3, 60]))
            return [
                {
                    "id": f"{node_id}_{n}",
                    "type": "set",
                    "name": draw(names()) if n < 3 else "n" * 60,
                    "with": {"x": 1},
                }
                for n in range(count)
            ]
        case "foreach":
            items = draw(st.lists(names(), min_size=1, max_size=3))
            body = draw(part(f"{node_id}_i", depth + 1))
            return [
                {"id": node_id, "type": "foreach", "with": {"items": items, "concurrency": 3}, "body": body}
            ]
        case "parallel":
            branches = {f"b{n}": draw(part(f"{node_id}_b{n}", depth + 1)) for n in range(2)}
            return [{"id": node_id, "type": "parallel", "with": {"mode": "collect"}, "branches": branches}]
        case "loop":
            body = draw(part(f"{node_id}_l", depth + 1))
            until = "{{ index >= 1 }}"
            return [
                {"id": node_id, "type": "loop", "name": draw(names()), "with": {"until": until}, "body": body}
            ]
    run: Json = {"run": ["fail", draw(texts())]}
    return [{"id": node_id, "type": "shell", "name": draw(names()), "on_error": "ask", "with": run}]


@st.composite
def long_flows(draw: st.DrawFn, name: str = "long") -> str:
    """A flow as YAML (JSON is YAML)."""
    choices = draw(st.lists(names(), min_size=1, max_size=3, unique=True))
    inputs = {
        "which": {"type": "string", "description": draw(texts()), "choices": choices},
        "what": {"type": "string", "description": draw(texts())},
    }
    nodes = [node for n in range(draw(st.integers(1, 3))) for node in draw(part(f"n{n}"))]
    end = draw(st.sampled_from([[], [{"id": "end", "type": "fail", "with": {"message": draw(texts())}}]]))
    flow = {"flow": name, "description": draw(texts()), "inputs": inputs, "nodes": [*nodes, *end]}
    return re.sub(r"[\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]", "?", json.dumps(flow, ensure_ascii=False))
