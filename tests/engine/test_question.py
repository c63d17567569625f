"""The question on the wire: flat, under its released names, in its released order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.decide import replies
from engine.forms.question import Question
from engine.forms.question_kinds import KINDS
from engine.journal.events import PromptRequested, decode_event, prompts
from engine.language.codec import encode
from engine.language.errors import MalformedJournal

HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*/*.jsonl"))


def asked() -> list[dict[str, Any]]:
    """Every question of every golden history."""
    events = [decode_event(line) for path in HISTORIES for line in path.read_bytes().splitlines()]
    return [event.prompt for event in events if isinstance(event, PromptRequested)]


def test_a_released_question_is_written_byte_for_byte() -> None:
    """What a release wrote is written again with the same names, in the same order, and null where it was null."""
    questions = asked()
    assert len(questions) >= 15
    assert [encode(Question.from_wire(one).to_wire()) for one in questions] == list(map(encode, questions))


def test_what_is_absent_or_null_has_its_default() -> None:
    """A release that knew less of questions is read as one that says nothing of it."""
    assert Question.from_wire({"kind": "ask", "who": None, "generation": None}) == Question(kind="ask")


@pytest.mark.parametrize("change", [{"options": "yes"}, {"kind": 3}, {"required": "two"}, {"who": ["a", 1]}])
def test_a_question_of_other_types_is_a_malformed_journal(change: dict[str, Any]) -> None:
    """A field of another type is refused, so that nobody decides by a list that cannot be read."""
    with pytest.raises(MalformedJournal, match="not a question"):
        Question.from_wire({"kind": "ask", **change})


def test_every_kind_of_question_says_what_an_answer_means() -> None:
    """The journal and a step have rules for each kind of question, and for the approval of a tool call."""
    kinds = {*KINDS, "tool"}
    assert set(prompts._RULES) == kinds
    assert set(replies._AFTER) == kinds
