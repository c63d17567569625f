"""What people give with a command is used or refused, and bounded, by whatever way it comes."""

from __future__ import annotations

from typing import Any

import pytest

from engine.decide.commands import Abort, Answer, Edit, HandOver, Hold, Message, Resume, Steer
from engine.decide.question import MAX_TEXT
from engine.language.actors import Actor
from engine.language.errors import InvalidAnswer, NotAllowed
from engine.run.hub import Hub
from tests.support.engine import ANA, EngineRig, given

APPROVAL = "nodes: [{id: q, type: approval, with: {message: 'Go?', approvers: [channel], required: 2}}]"
CHOICE = "nodes: [{id: q, type: ask, with: {message: 'Which?', choices: [eu, us]}}]"
TEXT = "nodes: [{id: q, type: ask, with: {message: 'How?'}}]"
FORM = "nodes: [{id: q, type: ask, with: {message: 'How?', form: {properties: {size: {type: integer}}}}}]"


@pytest.mark.parametrize(
    ("flow", "given_"),
    [
        (APPROVAL, {"value": "reject"}),
        (CHOICE, {"value": "eu"}),
        (TEXT, {"text": "well"}),
        (FORM, {"values": {"size": 1}}),
    ],
)
def test_a_reason_beside_any_answer_is_kept(flow: str, given_: dict[str, Any]) -> None:
    """Words that no choice asked for stand with the answer in the journal."""
    case = given(flow).started()
    case.when(case.answer(**given_, reason="it is near"))
    assert case.event("prompt:answered").answer["reason"] == "it is near"


@pytest.mark.parametrize(
    ("flow", "given_"),
    [
        (CHOICE, {"value": "eu", "text": "us"}),
        (CHOICE, {"value": "eu", "values": {"size": 1}}),
        (CHOICE, {"value": "eu", "always": {"seconds": 60}}),
        (CHOICE, {"text": "eu", "files": [{"name": "a", "path": "a", "size": 1, "type": None}]}),
        (TEXT, {"text": "well", "value": "eu"}),
        (FORM, {"values": {"size": 1}, "text": "2"}),
        (APPROVAL, {"value": "approve", "text": "fine"}),
        (APPROVAL, {"value": "approve", "values": {"size": 2}}),
        (APPROVAL, {"value": "approve", "always": {"seconds": 60}}),
    ],
)
def test_a_part_of_an_answer_that_its_question_does_not_take_is_refused(
    flow: str, given_: dict[str, Any]
) -> None:
    """No part of an answer is dropped in silence: the whole is refused, and nothing is journaled."""
    case = given(flow).started()
    case.refused(case.answer(**given_), InvalidAnswer)


async def test_an_answer_needs_its_question_and_its_author(rig: EngineRig) -> None:
    """`resume` with an answer that names no question, and a snapshot resumed by nobody, are refused."""
    session_id = (await rig.settled(CHOICE)).session_id
    with pytest.raises(InvalidAnswer, match="prompt_id"):
        await Hub(rig.engine, session_id, ANA).resume(session_id, "go on", answer="eu")
    with pytest.raises(NotAllowed, match="actor"):
        await rig.engine.resume_from_snapshot(b"{}", message="go on")


LONG = "x" * (MAX_TEXT + 1)


@pytest.mark.parametrize(
    "command",
    [
        Answer("P", ANA, "k", value="reject", reason=LONG),
        Answer("P", ANA, "k", value=LONG),
        Answer("P", ANA, "k", text="é" * (MAX_TEXT // 2 + 1)),
        Answer("P", ANA, "k", values={"size": [LONG]}),
        Answer("P", ANA, "k", values={LONG: 1}),
        Answer("P", ANA, "k", value="approve", always={"patterns": {"run": LONG}}),
        Edit("P", ANA, "k", {"size": LONG}),
        HandOver("P", ANA, "k", f"{LONG}@example.com"),
        Abort(ANA, LONG),
        Hold(ANA, LONG),
        Resume(LONG, ANA, "k"),
        Message(LONG, ANA, "k"),
        Steer(LONG, ANA, "k"),
        Steer("see", ANA, "k", files=({"name": LONG, "path": "a"},)),
        Answer("P", ANA, "k", files=[{"name": LONG, "path": "a"}]),
        Abort(Actor.local(LONG)),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_text_is_bounded_whatever_it_is_for(command: Any) -> None:
    """Reasons, texts, names and values of more than 16 KiB are refused with their size, and nothing is journaled."""
    assert "the limit is 16,384" in given(APPROVAL).started().refused(command, InvalidAnswer)
