"""Decisions of several people: votes, vetoes, reasons, edits, handing over, and the words for who comes too late."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given as of
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.decide.commands import Answer, Edit, HandOver
from engine.decide.policy import Gate
from engine.journal.fold import derive_state
from engine.journal.snapshot import from_bytes, to_bytes
from engine.language import timestamps
from engine.language.actors import Actor
from engine.language.errors import AlreadyAnswered, FlowError, InvalidAnswer, NotAllowed
from prompt_state.question_row import PromptState, prompt_row
from tests.support.engine import Scenario, flow_of, given
from tests.support.proving import tries

TEAM = "T1"
OUTCOMES = {"approve": "completed", "reject": "failed"}


def person(name: str, **facts: Any) -> Actor:
    """Somebody of this workspace, with every fact known."""
    known = {"team_id": TEAM, "in_channel": True, "facts_known": True, **facts}
    return Actor(f"U{name.upper()}", name=name, **known)


UMA, BEA, CEM, DAN = person("uma"), person("bea"), person("cem"), person("dan")


def gate(**more: Any) -> Scenario:
    """An approval, with the real policy, that Uma asked for."""
    config = {"message": "Go?", "approvers": ["UBEA", "UCEM", "UDAN"], **more}
    case = given(json.dumps({"flow": "demo", "nodes": [{"id": "gate", "type": "approval", "with": config}]}))
    case.policy = Gate(home_team=TEAM)
    return case.started(UMA)


def decided(case: Scenario) -> tuple[str, list[str], str | None]:
    """Decision, by whom, and why."""
    run = case.node("gate")
    output = run.output or {"decision": "reject", **(run.error or {})}
    return output["decision"], [who["id"] for who in output["by"]], output["reason"]


def row(case: Scenario, prompt_id: str) -> PromptState:
    """The prompt as its thread sees it."""
    put = prompt_row(replace(case.state, session_id="s"), case.state.prompts[prompt_id])
    return PromptState.from_bytes(put.body)


# --- several people --------------------------------------------------------------------------------------


def test_the_first_of_two_approvals_decides_nothing() -> None:
    """A vote is recorded, the flow continues waiting, and the prompt shows how far it is."""
    case = gate(required=2)
    prompt_id = case.prompt.prompt_id
    case.when(case.answer("approve", actor=BEA)).then("prompt:voted")
    assert case.state.phase == "waiting"
    (vote,) = row(case, prompt_id).votes
    assert (vote.actor_id, vote.actor_name, vote.vote, vote.at) == ("UBEA", "bea", "approve", case.now)
    assert row(case, prompt_id).required == 2


def test_the_last_approval_that_was_missing_decides() -> None:
    """The second person's vote is a fact like the first, and the answer follows with all votes in it."""
    case = gate(required=2)
    case.when(case.answer("approve", actor=BEA))
    case.when(case.answer("approve", actor=CEM, reason=" looks right "))
    case.then(
        "prompt:voted", "prompt:answered", "flow:resumed", "node:completed", "flow:completed", "session:end"
    )
    assert decided(case) == ("approve", ["UBEA", "UCEM"], "looks right")
    assert [vote["vote"] for vote in case.event("prompt:answered").answer["votes"]] == ["approve", "approve"]


def test_one_approver_leaves_one_event() -> None:
    """Where one person decides, the answer alone says it."""
    case = gate()
    case.when(case.answer("approve", actor=BEA))
    assert [event.type for event in case.last if event.type.startswith("prompt:")] == ["prompt:answered"]
    assert "votes" not in case.event("prompt:answered").answer


def test_nobody_votes_twice() -> None:
    """The same person's second approval is refused with how far it is, and counts no second time."""
    case = gate(required=2)
    case.when(case.answer("approve", actor=BEA))
    text = case.refused(case.answer("approve", actor=BEA), AlreadyAnswered)
    assert "You have already voted" in text
    assert "1 of 2 approved" in text


def test_a_later_vote_replaces_ones_own() -> None:
    """A person who changes their mind before the decision has one vote, the later one."""
    case = gate(required=2, veto="majority")
    case.when(case.answer("reject", actor=BEA, reason="why?"), case.answer("approve", actor=BEA))
    assert [vote["vote"] for vote in case.prompt.votes] == ["approve"]
    case.when(case.answer("approve", actor=CEM))
    assert decided(case) == ("approve", ["UBEA", "UCEM"], None)


def test_a_veto_ends_it_at_once() -> None:
    """With `veto: any` one rejection decides, whatever was voted before."""
    case = gate(required=3)
    case.when(case.answer("approve", actor=BEA), case.answer("approve", actor=CEM))
    case.when(case.answer("reject", actor=DAN, reason="too risky"))
    assert decided(case) == ("reject", ["UDAN"], "too risky")


def test_a_majority_has_to_reject() -> None:
    """With `veto: majority` it is rejected when more than half of those required have rejected, with their reasons."""
    case = gate(required=2, veto="majority")
    case.when(case.answer("reject", actor=BEA, reason="one"))
    assert case.state.phase == "waiting"
    case.when(case.answer("reject", actor=CEM, reason="two"))
    assert decided(case) == ("reject", ["UBEA", "UCEM"], "one\ntwo")


def test_a_rejection_needs_its_reason() -> None:
    """With `require_reason` a rejection without one is refused, and the question stays open; approving needs none."""
    case = gate(require_reason=True)
    for reason in (None, "", "  \n ", "\u200b", " \u2060\u3164"):
        text = case.refused(case.answer("reject", actor=BEA, reason=reason), InvalidAnswer)
        assert "give a reason" in text
    case.when(case.answer("reject", actor=BEA, reason="not tonight"))
    assert decided(case) == ("reject", ["UBEA"], "not tonight")
    assert decided_at_once(gate(require_reason=True)) == "approve"


def decided_at_once(case: Scenario) -> str:
    case.when(case.answer("approve", actor=BEA))
    return decided(case)[0]


def test_a_vote_after_the_decision_is_told_who_decided() -> None:
    """Whoever comes too late reads who decided, when, and what; nothing changes."""
    case = gate(required=2)
    late = case.answer("approve", actor=DAN)
    case.when(case.answer("approve", actor=BEA), case.answer("approve", actor=CEM))
    text = case.refused(late, AlreadyAnswered)
    assert text == f"Already answered by bea and cem at {timestamps.told(case.now)}: approved."


def test_a_vote_of_somebody_who_may_not_counts_nothing() -> None:
    """The policy is asked for each vote: the requester, a bystander and a bot are refused."""
    case = gate(required=2, exclude_requester=True, approvers=["UBEA", "UCEM", "UUMA"])
    for who in (UMA, DAN, person("bea", is_bot=True), person("bea", facts_known=False)):
        case.refused(case.answer("approve", actor=who), NotAllowed)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"required": 3, "approvers": ["UBEA", "UCEM"]},
            "3 people must approve, but only 2 people are listed",
        ),
        (
            {"required": 2, "approvers": ["UBEA", "requester"], "exclude_requester": True},
            "2 people must approve, but only one person is listed",
        ),
        ({"required": 0, "approvers": ["UBEA"]}, "expected at least 1"),
        ({"veto": "all", "approvers": ["UBEA"]}, "expected any or majority"),
        ({"valid_for": "1h", "approvers": ["UBEA"]}, "`valid_for` only applies with `covers`"),
    ],
)
def test_a_quorum_that_cannot_be_reached_does_not_load(config: dict[str, Any], message: str) -> None:
    """What can be seen in the file to be wrong is said when the file is loaded."""
    node = {"id": "gate", "type": "approval", "with": {"message": "Go?", **config}}
    with pytest.raises(FlowError, match=message):
        flow_of(json.dumps({"flow": "demo", "nodes": [node]}))


VOTERS = (BEA, CEM, DAN)
VOTES = st.lists(st.tuples(st.sampled_from(VOTERS), st.sampled_from(["approve", "reject"])), max_size=12)


def modelled(votes: list[tuple[Actor, str]], required: int, veto: str) -> str | None:
    """What such votes decide, said as plainly as possible."""
    standing: dict[str, str] = {}
    for who, vote in votes:
        standing[who.id] = vote
        against = [one for one in standing.values() if one == "reject"]
        if (veto == "any" and against) or len(against) > required / 2:
            return "reject"
        if len(standing) - len(against) >= required:
            return "approve"
    return None


@settings(max_examples=tries(150))
@of(VOTES, st.integers(1, 3), st.sampled_from(["any", "majority"]))
def test_votes_never_give_a_wrong_outcome(votes: list[tuple[Actor, str]], required: int, veto: str) -> None:
    """Whatever is voted in whatever order, the outcome is that of a model, and the fold of the journal agrees."""
    case = gate(required=required, veto=veto)
    prompt_id = case.prompt.prompt_id
    for number, (who, vote) in enumerate(votes):
        command = Answer(prompt_id, who, f"k{number}", value=vote, reason=str(number))
        if case.state.prompts[prompt_id].open:
            case.when(command)
        else:
            case.refused(command, AlreadyAnswered)
    expected = modelled(votes, required, veto)
    if expected is None:
        assert case.node("gate").status == "started"
    else:
        decision, by, _ = decided(case)
        assert (decision, case.node("gate").status) == (expected, OUTCOMES[expected])
        assert len(by) == len(set(by))
        assert len(by) >= required or expected == "reject"
    assert derive_state(case.events) == case.state
    assert to_bytes(from_bytes(to_bytes(case.state))) == to_bytes(case.state)
    assert len(row(case, prompt_id).votes) == len(case.state.prompts[prompt_id].votes)


# --- handing over ----------------------------------------------------------------------------------------


def hand(case: Scenario, giver: Actor, to: str, key: str = "h1") -> HandOver:
    return HandOver(case.prompt.prompt_id, giver, key, to)


def test_the_new_person_takes_the_place_of_the_old() -> None:
    """Whoever hands an approval over may decide it no more, and the one it was handed to may."""
    case = gate()
    case.when(hand(case, BEA, "UEVE")).then("prompt:handed")
    assert case.prompt.approvers == ("UBEA", "UCEM", "UDAN", "UEVE")
    assert case.prompt.excluded == ("UBEA",)
    assert case.prompt.handed == ({"by": BEA.record(), "to": "UEVE", "at": case.now},)
    assert "You handed this over" in case.refused(case.answer("approve", actor=BEA), NotAllowed)
    case.when(case.answer("approve", actor=person("eve")))
    assert decided(case)[:2] == ("approve", ["UEVE"])


def test_a_vote_goes_with_the_place() -> None:
    """Handing over drops the vote of the one who does it, so that one place never counts twice."""
    case = gate(required=2)
    case.when(case.answer("approve", actor=BEA), hand(case, BEA, "UEVE"))
    assert case.prompt.votes == ()
    case.when(case.answer("approve", actor=person("eve")))
    assert case.state.phase == "waiting"


def test_what_was_handed_over_can_be_given_back() -> None:
    """The place returns to the one who had it."""
    case = gate()
    case.when(hand(case, BEA, "UEVE"), hand(case, person("eve"), "UBEA", "h2"))
    assert case.prompt.excluded == ("UEVE",)
    case.refused(case.answer("approve", actor=person("eve")), NotAllowed)
    case.when(case.answer("approve", actor=BEA))
    assert decided(case)[1] == ["UBEA"]


@pytest.mark.parametrize(
    ("to", "text"),
    [
        ("UUMA", "started this and cannot approve it"),
        ("requester", "started this and cannot approve it"),
        ("UBEA", "already hold this"),
        ("UCEM", "is already asked"),
        ("@sre", "is not a person"),
        ("channel", "is not a person"),
        ("", "is not a person"),
        ("U1 OR 1=1", "is not a person"),
    ],
)
def test_nobody_gets_a_prompt_who_must_not(to: str, text: str) -> None:
    """An approval that excludes the requester is not handed to them, nor to a group, nor to whoever is asked already."""
    case = gate(exclude_requester=True)
    assert text in case.refused(hand(case, BEA, to), InvalidAnswer)


def test_nobody_is_handed_a_prompt_under_a_second_name() -> None:
    """Whoever is on the list by e-mail address is asked already; else one person would have two places."""
    case = gate(approvers=["bea@example.com", "Cem@example.com"])
    bea, cem = person("bea", email="bea@example.com"), person("cem", email="cem@example.com")
    given_to_cem = HandOver(case.prompt.prompt_id, bea, "h1", "UCEM", cem)
    assert "cem is already asked" in case.refused(given_to_cem, InvalidAnswer)
    dan = person("dan", email="dan@example.com")
    case.when(HandOver(case.prompt.prompt_id, bea, "h2", "UDAN", dan)).then("prompt:handed")
    case.when(HandOver(case.prompt.prompt_id, dan, "h3", "UBEA", bea)).then("prompt:handed")
    assert case.prompt.excluded == ("UDAN",)


@pytest.mark.parametrize("facts", [{"is_bot": True}, {"deleted": True}])
def test_nobody_is_handed_a_prompt_who_cannot_answer_any(facts: dict[str, bool]) -> None:
    """An app, or an account that is deactivated, would leave the question to nobody."""
    case = gate()
    to = HandOver(case.prompt.prompt_id, BEA, "h1", "UEVE", person("eve", **facts))
    assert "eve cannot answer this" in case.refused(to, InvalidAnswer)


def test_changes_leave_enough_people_who_can_approve() -> None:
    """Whoever changed it or handed it over is not an approver any more, also where the list has e-mail addresses only."""
    form = {"properties": {"count": {"type": "integer", "default": 1}}}
    more = {"form": form, "editable": ["count"], "exclude_requester": True}
    case = gate(approvers=["bea@example.com", "cem@example.com"], **more)
    prompt_id = case.prompt.prompt_id
    bea, cem = person("bea", email="bea@example.com"), person("cem", email="cem@example.com")
    case.when(HandOver(prompt_id, bea, "h1", "UDAN", DAN)).then("prompt:handed")
    case.when(Edit(prompt_id, cem, "e1", {"count": 2})).then("prompt:edited")
    case.when(Edit(prompt_id, cem, "e2", {"count": 3})).then("prompt:edited")
    refused = case.refused(Edit(prompt_id, DAN, "e3", {"count": 4}), InvalidAnswer)
    assert "too few approvers would be left" in refused
    case.when(case.answer("approve", actor=DAN))
    assert decided(case)[:2] == ("approve", ["UDAN"])


def test_only_who_may_decide_hands_an_approval_over() -> None:
    """Neither the requester nor a bystander can choose who decides."""
    case = gate()
    for who in (UMA, person("eve")):
        case.refused(hand(case, who, "UEVE"), NotAllowed)


def test_a_question_can_be_handed_over_by_its_requester() -> None:
    """An ask for the requester is answered by the person whom it was handed to, and no more by the requester."""
    case = given("nodes: [{id: q, type: ask, with: {message: How?}}]")
    case.policy = Gate(home_team=TEAM)
    case.started(UMA).when(hand(case, UMA, "UBEA"))
    assert case.prompt.who == ("requester", "UBEA")
    case.refused(case.answer(text="fine", actor=UMA), NotAllowed)
    case.when(case.answer(text="fine", actor=BEA))
    assert case.node("q").output["by"]["id"] == "UBEA"


def test_a_question_about_a_failed_step_can_be_handed_over() -> None:
    """Whoever the question about a failure was handed to says how it continues."""
    case = given("nodes: [{id: f, type: fail, on_error: ask, with: {message: broken}}]")
    case.policy = Gate(home_team=TEAM)
    case.started(UMA).when(hand(case, UMA, "UBEA"))
    case.refused(case.answer("skip", actor=CEM), NotAllowed)
    case.when(case.answer("skip", actor=BEA))
    assert case.state.status == "complete"


def test_a_closed_question_is_not_handed_over() -> None:
    """Once it is answered, who answers it is not a question any more."""
    case = gate()
    late = hand(case, BEA, "UEVE")
    case.when(case.answer("approve", actor=CEM))
    case.refused(late, AlreadyAnswered)


def test_a_hand_over_that_was_seen_changes_nothing() -> None:
    """The same delivery twice is one hand-over."""
    case = gate()
    case.when(hand(case, BEA, "UEVE"))
    case.when(hand(case, BEA, "UEVE")).then()
