"""Agents in random walks: what files say about them, what models answer, and what holds of every conversation."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import orjson
from hypothesis import strategies as st

from engine.decide.agents.model_request import request
from engine.decide.commands import Command, NodeBroke, NodeDone
from engine.flow import Flow
from engine.journal.queries import TURN
from engine.journal.state import AgentRun, State
from engine.language.codec import Json
from engine.messages.messages import legal
from engine.messages.request import betas
from engine.models.claude import body_of
from engine.models.turn_runner import request_from
from tests.support.claude_rules import check

TOOLS: dict[str, Any] = {
    "note": {
        "description": "Keep a note",
        "input": {"text": {"type": "string", "default": "x"}},
        "type": "set",
        "with": {"kept": "{{ input.text }}", "word": "{{ inputs.word }}"},
    },
    "look": {
        "description": "Look at something",
        "input": {"what": {"type": "string", "required": False}},
        "type": "shell",
        "with": {"run": ["ls", "{{ input.what }}"]},
        "on_crash": "again",
    },
}
"""Tools of every random flow."""

_RULES: list[Any] = [
    {},
    {"shell": ["approve", "edit", "reject"]},
    {"shell": {"required": 2, "approvers": ["channel"], "timeout": "1m"}, "look": ["approve", "reject"]},
    {"look": {"when": "{{ input.what == 'a' }}"}, "note": ["approve", "reject"]},
]
_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@st.composite
def agents(draw: st.DrawFn) -> dict[str, Any]:
    """What an agent has under `with`."""
    more = {
        "max_cost": st.sampled_from([0.01, 0.2, 1]),
        "max_turns": st.integers(1, 4),
        "max_tokens_total": st.sampled_from([5_000, 50_000]),
        "output": st.just(_SCHEMA),
        "system": st.just("Be short."),
        "approvals": st.sampled_from(_RULES),
    }
    given = {name: draw(values) for name, values in more.items() if draw(st.integers(0, 2)) == 0}
    tools = ["ask_human", {"shell": {"commands": ["*"], "timeout": "1m"}}, "read_file", "note", "look"]
    return {"prompt": "Think about {{ inputs.word }}", "tools": tools, **given}


_CALLS: list[tuple[str, Any]] = [
    ("note", {"text": "a"}),
    ("note", {"text": 3}),
    ("look", {}),
    ("look", {"what": "a"}),
    ("look", {"what": "x" * 5000}),
    ("shell", {"command": "ls -l"}),
    ("shell", {"command": "ls | rm"}),
    ("read_file", {"path": "a.txt"}),
    ("read_file", {"path": "../a"}),
    ("ask_human", {"question": "Which?", "choices": ["a", "b"]}),
    ("ask_human", {"question": "How?"}),
    ("nothing", {}),
]
_TEXTS = ["", "Well.", '{"n": 1}', '{"n": "x"}', " ", "x" * 3000]
_BROKEN: list[dict[str, Json]] = [
    {"type": "overloaded", "message": "no", "details": {"retryable": True, "retryAfter": None}},
    {"type": "rate_limited", "message": "no", "details": {"retryable": True, "retryAfter": 90.0}},
    {"type": "access_denied", "message": "no", "details": {"retryable": False}},
    {"type": "internal", "message": "no", "details": None},
]


@st.composite
def models(draw: st.DrawFn, state: State) -> Command:
    """What comes of one of the model calls that run: an answer, half of one, or a failure."""
    path = draw(st.sampled_from(calling(state)))
    attempt = state.nodes[path].attempt
    if draw(st.integers(0, 5)) == 0:
        return NodeBroke(path, attempt, draw(st.sampled_from(_BROKEN)))
    return NodeDone(path, attempt, draw(answers(f"t{state.seq}")))


@st.composite
def requests(draw: st.DrawFn, state: State) -> Command:
    """One of the model calls that run asks for tools."""
    path = draw(st.sampled_from(calling(state)))
    calls = draw(st.lists(st.sampled_from(_CALLS), min_size=1, max_size=4))
    content = [
        {"type": "tool_use", "id": f"t{state.seq}_{place}", "name": name, "input": given}
        for place, (name, given) in enumerate(calls)
    ]
    return NodeDone(
        path, state.nodes[path].attempt, {**plain(), "content": content, "stopReason": "tool_use"}
    )


@st.composite
def answers(draw: st.DrawFn, ids: str) -> dict[str, Json]:
    """An answer. Ids of its tool calls are its own, but now and then two are the same."""
    calls = draw(st.lists(st.sampled_from(_CALLS), max_size=3))
    text = draw(st.sampled_from(_TEXTS))
    content: list[Json] = [{"type": "text", "text": text}] if text.strip() else []
    same = draw(st.integers(0, 20)) == 0
    for place, (name, given) in enumerate(calls):
        id_ = f"{ids}_{0 if same else place}"
        content.append({"type": "tool_use", "id": id_, "name": name, "input": given})
    if not content:
        content = [{"type": "text", "text": "Yes."}]
    interrupted = draw(st.integers(0, 6)) == 0
    odd = draw(st.sampled_from([None] * 12 + ["max_tokens", "refusal", "pause_turn"]))
    used = draw(st.sampled_from([0, 100, 20_000, 900_000]))
    return {
        "content": [] if interrupted and draw(st.booleans()) else content,
        "stopReason": None if interrupted else odd or ("tool_use" if calls else "end_turn"),
        "usage": {"input_tokens": used, "output_tokens": 20},
        "model": "claude-sonnet-5-5",
        "interrupted": interrupted,
        "requestId": None,
    }


def plain() -> dict[str, Json]:
    """The answer that brings an agent to its end."""
    return {
        "content": [{"type": "text", "text": '{"n": 1}'}],
        "stopReason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 2},
        "model": "claude-sonnet-5-5",
        "interrupted": False,
    }


@st.composite
def talks(draw: st.DrawFn) -> str:
    """The text of a flow that begins with an agent: alone, with another one beside it, or in a loop."""
    nodes: list[dict[str, Any]] = []
    for name in ("one", "two"):
        more = {"on_error": st.sampled_from(["continue", "ask"]), "timeout": st.just("2h")}
        given = {key: draw(values) for key, values in more.items() if draw(st.integers(0, 3)) == 0}
        nodes.append({"id": name, "type": "agent", "with": draw(agents()), **given})
    around = draw(st.sampled_from(["alone", "parallel", "foreach", "one after the other"]))
    if around == "alone":
        nodes = nodes[:1]
    elif around == "parallel":
        branches = {f"b_{node['id']}": [node] for node in nodes}
        nodes = [{"id": "both", "type": "parallel", "branches": branches}]
    elif around == "foreach":
        body = {"items": [1, 2], "concurrency": draw(st.integers(1, 2))}
        nodes = [{"id": "each", "type": "foreach", "with": body, "body": nodes[:1]}]
    else:
        nodes[1]["with"]["context"] = ["one"]
    document = {"flow": "talks", "inputs": {"word": {"type": "string", "default": "a"}}, "nodes": nodes}
    if draw(st.booleans()):
        document["limits"] = {"max_cost": draw(st.sampled_from([0.3, 2])), "max_turns": 6}
    return orjson.dumps({**document, "tools": TOOLS}).decode()


def calling(state: State) -> list[str]:
    """The model calls that run."""
    return [path for path in state.launched if state.nodes[path].type == TURN]


# --- what holds ----------------------------------------------------------------------------------------------------


def check_conversations(flow: Flow, state: State) -> None:
    """What holds of all conversations after every turn, whatever happened before."""
    for path in calling(state):
        asked = request_from(request(flow, state, path))
        assert not legal(asked.messages), legal(asked.messages)
        body = body_of(asked)
        check(body, {}, betas(body))
    begun = [run for run in state.nodes.values() if run.type == TURN and run.status == "started"]
    assert Decimal(state.spent.reserved) == sum(
        Decimal((run.input or {}).get("reserved") or 0) for run in begun
    )
    found = {path: each.agent for path, each in state.containers.items() if each.agent is not None}
    for path, agent in found.items():
        check_tools(path, agent)
    settled = sum(Decimal(agent.spent.cost) for agent in found.values())
    assert Decimal(state.spent.cost) >= settled
    assert Decimal(state.spent.reserved) >= 0
    assert Decimal(state.spent.unsure) >= 0


def check_tools(path: str, agent: AgentRun) -> None:
    """Every tool call has one result, or one place where it is waited for; only those of the last answer wait."""
    uses: Counter[str] = Counter()
    given: Counter[str] = Counter(agent.results.keys())
    for number in range(len(agent.messages)):
        for block in agent.messages[number]["content"]:
            uses[block.get("id", "")] += block["type"] == "tool_use"
            given[block.get("tool_use_id", "")] += block["type"] == "tool_result"
    waited = Counter(call.tool_use_id for call in agent.calls.values())
    assert +uses == +(given + waited), f"{path}: {+uses} were asked for, and there are {+given} and {+waited}"
    assert set(waited) <= set(agent.order)
    assert set(agent.results) <= set(agent.order)
