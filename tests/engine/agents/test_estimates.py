"""The reservation for a model call is never less than the possible cost of its answer and of the journaled prompt."""

from __future__ import annotations

from decimal import Decimal

import pytest

from engine.decide.agents import budget
from engine.decide.commands import Hold, Resume
from engine.messages.prices import DEFAULTS, worst_case
from engine.nodes.types.agent import MAX_TOKENS
from tests.engine.agents.talks import Talk, talk
from tests.support.claude_mind import tokens
from tests.support.engine import ANA

READ = ("read_file", {"path": "a.txt"})
PAGE = {"text": "disk full " * 5000, "first_line": 1, "last_line": 1, "total_lines": 1, "more": False}


def enough(case: Talk) -> bool:
    """Whether what is set aside for the call that runs is at least what it can cost, at three bytes a token."""
    asked, model = case.request(), case.agent.model
    sent = tokens([asked["system"], asked["tools"], asked["messages"]])
    most = worst_case(DEFAULTS[model], sent, MAX_TOKENS)
    return Decimal(case.node(case.calling).input["reserved"]) >= most


def read() -> Talk:
    """An agent whose next call sends a long page, and that has begun it."""
    case = talk("tools: [read_file]").model("", READ).tool("tool[0]", PAGE)
    assert enough(case)
    return case


def test_a_call_that_is_made_again_after_a_crash_sets_aside_all_that_it_sends() -> None:
    """What the call sent for the first time has not been counted by an answer, so it counts for the second time too."""
    case = read()
    first = case.node(case.calling).input["reserved"]
    case.claimed()
    assert case.node(case.calling).attempt == 2
    assert case.node(case.calling).input["reserved"] == first
    assert enough(case)


def test_a_call_that_is_retried_sets_aside_all_that_it_sends() -> None:
    """The same after a failure."""
    case = read()
    case.when(case.broke()).later(60).when(case.timer_due())
    assert enough(case)


def test_a_call_after_one_that_was_stopped_sets_aside_all_that_it_sends() -> None:
    """What the stopped call sent, and what was said of its answer, count for the next one."""
    case = read()
    case.pausing = True
    case.only(case.reply("The disk " * 2000, interrupted=True)).only(Hold(ANA))
    case.pausing = False
    case.when(Resume("go on", ANA, "r1"))
    assert case.request()["messages"][-2]["role"] == "assistant"
    assert enough(case)


def test_the_form_of_the_answer_is_part_of_what_is_sent() -> None:
    """The schema of `output` is in the system prompt, and is set aside for."""
    fields = ", ".join(f"field_{number}: {{type: string, description: {'é' * 40}}}" for number in range(400))
    assert enough(talk(f"output: {{type: object, properties: {{{fields}}}}}"))


SERVED = "server_tools: {web_search: {domains: ['*'], max_uses: 2}}"


@pytest.mark.parametrize("more", ["fallbacks: [claude-opus-5-5]", SERVED, "files: [a.png, b.pdf]"])
def test_what_only_the_call_itself_shows_is_not_set_aside(more: str) -> None:
    """Models in line, tools of the provider and files are paid once they were used: the next call begins with that."""
    cap = "0.5"
    plain, case = talk("max_tokens: 1000"), talk(f"max_tokens: 1000\nmax_cost: {cap}\n{more}")
    name = case.calling
    within = Decimal(case.node(name).input["reserved"]) - Decimal(plain.node(name).input["reserved"])
    assert within < Decimal("0.001")
    used = {"input_tokens": 300_000, "output_tokens": 1_000}
    case.model("", ("shell", {"command": "x"}), usage=used)
    assert Decimal(case.agent.spent.cost) > Decimal(cap)
    assert case.prompt.kind == "budget"
    assert case.state.spent.turns == 1


def test_a_context_is_never_more_than_its_model_takes() -> None:
    """A prompt of more bytes than the model has tokens sets aside the model's whole context."""
    case = talk(f"max_tokens: 1000\nmodel: claude-haiku-4-5\nsystem: {'x' * 240_000}")
    assert case.node(case.calling).input["tokens"] == 201_000


def test_a_bound_that_leaves_something_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seeded fault: what came since the last answer is not counted."""
    monkeypatch.setattr(budget, "unsent", lambda agent: [])
    with pytest.raises(AssertionError):
        read()
