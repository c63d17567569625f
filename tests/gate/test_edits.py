"""Calls of agents that people change before they approve them: what they changed, and nothing else, is another call."""

from __future__ import annotations

from typing import Any

import pytest

from bot.gate.rules import approval_flow
from engine.decide.commands import Answer, Edit
from engine.decide.covered_nodes import digest
from engine.decide.request_edits import parts
from engine.language.codec import Json
from engine.language.errors import InvalidAnswer
from tests.support.engine import BEN, Scenario

ARGUMENTS: dict[str, Json] = {
    "command": " make deploy {{ now }}\r\n",
    "count": 3,
    "ratio": 1.0,
    "dry": True,
    "files": ["a", {"b": [1, True]}],
    "options": {},
    "empty": "",
    "nothing": None,
    "Content-Type": "json",
    "key": "sk-abcdefghijklmnopqrstuvwxyz",
    "password": "hunter2",
}
ALWAYS = {"seconds": 3600, "scope": "thread"}


def request(arguments: dict[str, Json] = ARGUMENTS, asking: dict[str, Json] | None = None) -> Scenario:
    """A request that people are asked about."""
    flow = approval_flow(asking or {"approvers": ["channel"]}, editable=arguments)
    shown = {part.name: part.shown for part in parts(arguments)}
    about = {"who": "codex", "why": "", "before": "", "shown": shown}
    return Scenario(flow).started(tool="Bash", arguments=arguments, about=about)


def change(case: Scenario, **values: Json) -> Edit:
    return Edit(case.prompt.prompt_id, BEN, f"edit-{case.state.seq}", values)


def approved(case: Scenario) -> dict[str, Json]:
    """The arguments that are handed out once it is approved."""
    case.when(case.answer("approve", actor=BEN))
    [prompt] = case.state.prompts.values()
    arguments: dict[str, Json] = case.state.nodes["call"].input["arguments"]
    assert prompt.covers is not None
    assert prompt.covers["digest"] == digest("call", {"tool": "Bash", "arguments": arguments})
    return arguments


def test_what_nobody_changed_is_as_the_agent_sent_it() -> None:
    """Byte for byte and under the same digest, also where a form would show it in another way."""
    case = request()
    assert case.prompt.covers["digest"] == digest("call", {"tool": "Bash", "arguments": ARGUMENTS})
    assert repr(approved(case)) == repr(ARGUMENTS)


def test_a_change_is_another_call_with_its_own_digest() -> None:
    """Each type is kept, whatever was not changed stays as it was, and the vote before is void."""
    case = request(asking={"approvers": ["channel"], "required": 2})
    case.when(case.answer("approve"))
    before = case.prompt.covers["digest"]
    changes: dict[str, Any] = {"command": "make docs", "count": 4, "ratio": 2, "dry": False, "empty": "x"}
    case.when(change(case, **changes, files='["b"]', options='{"deep": {"n": 1}}', argument_1="x"))
    assert case.prompt.votes == ()
    assert case.prompt.covers["digest"] != before
    case.when(case.answer("approve"))
    wanted = {**ARGUMENTS, **changes, "files": ["b"], "options": {"deep": {"n": 1}}, "Content-Type": "x"}
    assert approved(case) == wanted


def test_one_change_leaves_the_rest_and_can_be_taken_back() -> None:
    """The text with the odd line end stays odd; changed back, it is the call that the agent made."""
    case = request()
    case.when(change(case, count=4))
    assert case.prompt.covers["digest"] == digest(
        "call", {"tool": "Bash", "arguments": {**ARGUMENTS, "count": 4}}
    )
    case.when(change(case, count=3))
    assert repr(approved(case)) == repr(ARGUMENTS)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"files": "[1,"}, "`files`: this is not JSON"),
        ({"files": '{"a": 1}'}, "`files` must keep its type. Write JSON, such as [1, 2]"),
        ({"options": "[1]"}, '`options` must keep its type. Write JSON, such as {"limit": 10}'),
        ({"options": '{"n": 123456789012345678901234}'}, "does not fit in 64 bits"),
        ({"options": " "}, "Please fill this in"),
        ({"command": "\n"}, "Please fill this in"),
        ({"count": "many"}, "whole number"),
        ({"dry": "perhaps"}, "yes or no"),
        ({"password": "x"}, "cannot be changed here"),
        ({"key": "x"}, "cannot be changed here"),
        ({"nothing": "x"}, "cannot be changed here"),
        ({"other": "x"}, "cannot be changed here"),
        ({"count": 3}, "No changes to save"),
    ],
)
def test_a_change_that_is_none_is_refused_in_words(values: dict[str, Json], told: str) -> None:
    """Nothing is lost: the request waits as it was."""
    case = request()
    with pytest.raises(InvalidAnswer) as refused:
        case.when(change(case, **values))
    assert told in str(refused.value)
    assert repr(approved(case)) == repr(ARGUMENTS)


def test_a_changed_call_is_allowed_once() -> None:
    """A grant says what an agent may ask again, and it never asked this."""
    case = request()
    case.when(change(case, count=4))
    allow = Answer(case.prompt.prompt_id, BEN, "a", value="approve", always=ALWAYS, nonce=case.prompt.nonce)
    with pytest.raises(InvalidAnswer, match="allowed once"):
        case.when(allow)


@pytest.mark.parametrize("arguments", [{"it's": 1, "b": 2}, {f"a{n}": n for n in range(21)}, {}])
def test_names_that_no_expression_can_hold_are_not_changed(arguments: dict[str, Json]) -> None:
    """The call is asked about all the same, as is one with too many arguments."""
    case = request(arguments)
    assert case.prompt.editable == ()
    assert approved(case) == arguments


def test_every_argument_of_a_large_call_can_be_changed() -> None:
    """Up to the most fields, with names and values as long as they may be."""
    arguments: dict[str, Json] = {f"{'n' * 60}{n}": "x" * 3000 for n in range(20)}
    case = request(arguments)
    changed: dict[str, Json] = dict.fromkeys(arguments, "y" * 3000)
    case.when(change(case, **changed))
    assert approved(case) == changed
