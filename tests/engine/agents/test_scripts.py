"""Scripts instead of Claude: what is said follows from the place of the turn, so that a kill changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.messages.errors import ScriptError
from engine.models.scripted import place_of, position_of, provider_for, script_from, scripted_provider
from engine.models.turn_runner import TurnRunner
from engine.nodes.runtime.runner import Completed, Failed, NodeContext, Outcome
from tests.engine.agents.test_runner import config
from tests.nodes.nodekit import Context

SCRIPT = [
    {"text": "one"},
    {"error": {"kind": "overloaded"}},
    {"text": "half of two", "cut": True},
    {"text": "two"},
    {"text": "three"},
    {"error": {"kind": "rate_limited"}},
]


@pytest.fixture
def node(tmp_path: Path) -> Context:
    """What makes contexts."""
    return Context(tmp_path)


def turn(node: Context, number: int, attempt: int = 1, **changes: Any) -> NodeContext:
    """The context of a model call."""
    return node.build(path=f"diagnose/turn[{number}]", attempt=attempt, **changes)


def said(outcome: Outcome) -> str:
    """The answer's text, or the failure's type."""
    if isinstance(outcome, Failed):
        return outcome.type
    assert isinstance(outcome, Completed)
    return str(outcome.output["content"][0]["text"])


async def test_each_call_has_its_answer_whoever_asks(node: Context) -> None:
    """The n-th call gets the n-th answer, and its tries the errors before it, in any order and in any process."""
    script = script_from(SCRIPT)
    expected = {
        (1, 1): "one",
        (1, 2): "one",
        (2, 1): "overloaded",
        (2, 2): "stream_cut",
        (2, 3): "two",
        (2, 4): "two",
        (3, 1): "three",
        (4, 1): "rate_limited",
        (4, 2): "rate_limited",
        (5, 1): "script",
    }
    for (number, attempt), answer in reversed(expected.items()):
        run = TurnRunner(lambda ctx: provider_for(script, ctx))
        assert said(await run(config(), turn(node, number, attempt))) == answer, (number, attempt)


def test_a_script_without_more_turns_has_ended() -> None:
    """After the last answer there is nothing, and nothing is said twice."""
    turns = script_from([{"text": "one"}]).turns
    assert [position_of(turns, number, 1) for number in (1, 2, 3)] == [0, 1, 1]
    assert position_of((), 1, 1) == 0


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("diagnose/turn[1]", ("diagnose", 1)),
        ("diagnose#2/turn[12]", ("diagnose", 12)),
        ("build~2/turn[3]", ("build", 3)),
        ("rollout[2]/diagnose/turn[1]", ("diagnose", 1)),
        ("sub/rollout[2]/look#3/turn[4]", ("look", 4)),
    ],
)
def test_a_call_knows_its_agent_by_its_path(path: str, place: tuple[str, int]) -> None:
    """Second attempts, visits and passes of a loop belong to the same agent."""
    assert place_of(path) == place


def test_what_is_no_model_call_is_refused() -> None:
    """A script cannot answer for a node that is not a model call."""
    with pytest.raises(ScriptError, match="apply is not a model call"):
        place_of("rollout[2]/apply")


async def test_agents_of_one_flow_can_have_scripts_of_their_own(node: Context) -> None:
    """Turns under an agent's id are its own; without turns for all, another agent has none."""
    script = script_from({"agents": {"diagnose": [{"text": "mine"}]}})
    run = TurnRunner(lambda ctx: provider_for(script, ctx))
    assert said(await run(config(), turn(node, 1))) == "mine"
    outcome = await run(config(), node.build(path="triage/turn[1]"))
    assert isinstance(outcome, Failed)
    assert outcome.message == "the script has no turns for agent triage: diagnose"


async def test_the_script_beside_the_flow_answers(node: Context, tmp_path: Path) -> None:
    """`incident.script.yml` belongs to `incident.yml`; its answers name no model of Claude's and cost nothing."""
    (tmp_path / "incident.script.yml").write_text("- {text: from the file}\n")
    ctx = turn(node, 1, flow_file=tmp_path / "incident.yml")
    outcome = await TurnRunner(scripted_provider)(config(), ctx)
    assert isinstance(outcome, Completed)
    assert said(outcome) == "from the file"
    assert outcome.output["model"] == "scripted"
    assert set(outcome.output["usage"].values()) == {0}


async def test_a_named_script_comes_before_the_one_beside_the_flow(node: Context, tmp_path: Path) -> None:
    """A script that is named answers for every flow, and what it says was used is believed."""
    (tmp_path / "incident.script.yml").write_text("- {text: beside}\n")
    (tmp_path / "mine.yml").write_text("- {text: mine, usage: {input_tokens: 7, output_tokens: 3}}\n")
    ctx = turn(node, 1, flow_file=tmp_path / "incident.yml")
    outcome = await TurnRunner(lambda ctx: scripted_provider(ctx, tmp_path / "mine.yml"))(config(), ctx)
    assert isinstance(outcome, Completed)
    assert said(outcome) == "mine"
    assert outcome.output["usage"]["input_tokens"] == 7


async def test_without_any_script_the_answer_says_so(node: Context, tmp_path: Path) -> None:
    """Every call gets the same words, which say that nobody thought, and how to change that."""
    run = TurnRunner(scripted_provider)
    ctx = turn(node, 3, flow_file=tmp_path / "incident.yml")
    text = said(await run(config(), ctx))
    assert "scripted" in text
    assert "ANTHROPIC_API_KEY" in text
    assert "incident.script.yml" in text
    assert said(await run(config(), turn(node, 4, flow_file=tmp_path / "incident.yml"))) == text


async def test_a_script_that_cannot_be_read_fails_the_turn(node: Context, tmp_path: Path) -> None:
    """A broken script is a failure with the place of the mistake, which no retry helps."""
    (tmp_path / "incident.script.yml").write_text("- {says: x}\n")
    ctx = turn(node, 1, flow_file=tmp_path / "incident.yml")
    outcome = await TurnRunner(scripted_provider)(config(), ctx)
    assert isinstance(outcome, Failed)
    assert outcome.type == "script"
    assert "incident.script.yml: turns.0.says" in outcome.message
    assert outcome.details["retryable"] is False
