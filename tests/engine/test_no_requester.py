"""Runs that no person started: whom a question reaches then, and what fails where it could reach nobody."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from bot.intents.session_rows import tell_requester
from engine.decide.commands import HandOver
from engine.decide.policy import Gate
from engine.journal.queries import asked_people
from engine.language.actors import Actor
from engine.language.errors import InvalidAnswer
from tests.engine.agents.talks import talk
from tests.support.engine import Scenario, given

ANA = Actor("U0ANA", name="ana", email="Ana@x.com", team_id="T1", in_channel=True, facts_known=True)
STARTERS = [
    Actor.itself("schedule", "a schedule"),
    Actor.itself("message", "an app's message"),
    Actor.itself("webhook", "a webhook"),
]
ALONE = STARTERS[1]


def asks(kind: str, actor: Actor, **config: Any) -> Scenario:
    """A run of this actor that asks one question."""
    node = {"id": "gate", "type": kind, "with": {"message": "Go?", **config}}
    return given(json.dumps({"flow": "demo", "nodes": [node]})).started(actor)


@pytest.mark.parametrize("actor", STARTERS, ids=lambda actor: actor.id)
@pytest.mark.parametrize(
    ("kind", "config", "who"),
    [
        ("approval", {"approvers": ["requester"]}, "`requester` must"),
        ("approval", {"approvers": ["manager"]}, "`manager` must"),
        ("approval", {"approvers": ["requester", "manager"]}, "`requester` and `manager` must"),
        ("approval", {"approvers": ["requester", "U0BEN"], "required": 2}, "`requester` must"),
        ("ask", {"who": ["requester"]}, "`requester` must"),
        ("ask", {"who": ["requester"], "escalate": [{"after": "1h", "to": ["@sre"]}]}, "`requester` must"),
    ],
)
def test_a_question_for_a_requester_that_there_is_not_fails_at_once(
    actor: Actor, kind: str, config: dict[str, Any], who: str
) -> None:
    """Where only the requester could answer and no person started the run, the node fails and says what did."""
    case = asks(kind, actor, **config)
    message = (case.node("gate").error or {})["message"]
    assert message.startswith(f"node gate: {who}")
    assert message.endswith(f"this run has no requester: {actor.name} started it")


@pytest.mark.parametrize(
    ("kind", "config", "people"),
    [
        ("approval", {"approvers": ["requester", "@sre"]}, ["@sre"]),
        ("approval", {"approvers": ["U0BEN"], "exclude_requester": True}, ["U0BEN"]),
        ("approval", {"approvers": ["requester", "channel"], "required": 3}, ["channel"]),
        ("ask", {}, ["channel"]),
        (
            "ask",
            {"who": ["requester"], "escalate": [{"after": "1h", "to": ["@sre"], "may_answer": True}]},
            ["requester"],
        ),
    ],
)
def test_a_question_for_others_too_is_theirs(kind: str, config: dict[str, Any], people: list[str]) -> None:
    """Without a requester those who are listed beside them answer, or who may from some time on, or the channel."""
    case = asks(kind, ALONE, **config)
    assert asked_people(case.state, case.prompt) == people


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"approvers": "{{ ['a@x.com', 'A@x.com'] }}", "required": 2}, "only one person is listed"),
        ({"approvers": ["U0ANA"], "exclude_requester": True}, "one person has to approve, but none of"),
        ({"approvers": ["ana@X.com"], "exclude_requester": True}, "one person has to approve, but none of"),
    ],
)
def test_too_few_who_may_approve_fail_at_once(config: dict[str, Any], words: str) -> None:
    """People count once however they are written, and a requester who may not decide does not count."""
    assert words in (asks("approval", ANA, **config).node("gate").error or {})["message"]


@pytest.mark.parametrize("approvers", ["", "approvers: [requester]", "approvers: [manager]"])
def test_a_call_of_an_agent_is_decided_by_the_channel_or_fails(approvers: str) -> None:
    """Calls that name nobody are the channel's where there is no requester, and a call that only the requester or their
    manager may decide fails."""
    case = talk(f"tools: [write_file]\napprovals: {{write_file: {{{approvers}}}}}", actor=ALONE)
    case.model("", ("write_file", {"path": "a", "content": "b"}))
    if approvers:
        assert not case.state.open_prompts
        assert "Nobody can decide this call: " in str(case.events)
    else:
        assert case.prompt.approvers == ("channel",)


def test_nothing_is_handed_to_a_requester_that_there_is_not() -> None:
    """A question goes to a person, and neither to the part of sayso that started the run nor in a direct message to it."""
    case = asks("approval", ALONE, approvers=["U0ANA"])
    case.policy = Gate(home_team="T1")
    case.refused(HandOver(case.prompt.prompt_id, ANA, "k", "requester"), InvalidAnswer)
    assert tell_requester(replace(case.state, session_id="s"), "k", "ended") == []
