"""What is set aside for a model call: never less than it can cost, however the call before it ended."""

from __future__ import annotations

from decimal import Decimal

from engine.decide.commands import Hold, Resume
from engine.messages.prices import DEFAULTS, worst_case
from engine.messages.turns import TurnRequest
from tests.engine.agents.talks import Talk, talk
from tests.support.claude_mind import tokens
from tests.support.engine import ANA

READ = ("read_file", {"path": "a.txt"})
PAGE = {"text": "disk full " * 5000, "first_line": 1, "last_line": 1, "total_lines": 1, "more": False}
LIMIT = 8192
"""The longest answer, where the file says nothing."""


def enough(case: Talk) -> bool:
    """Whether what is set aside for the call that runs is at least what it can cost, at three bytes a token."""
    asked, model = case.request(), case.agent.model
    sent = tokens([asked["system"], asked["tools"], asked["messages"]])
    most = worst_case(TurnRequest(model, (), LIMIT), DEFAULTS[model], prompt_tokens=sent)
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
    """The schema of `output` stands in the system prompt, and is set aside for."""
    fields = ", ".join(f"field_{number}: {{type: string, description: {'é' * 40}}}" for number in range(400))
    assert enough(talk(f"output: {{type: object, properties: {{{fields}}}}}"))
