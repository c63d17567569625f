"""Every person, every thing that can be done to a question, every kind of question: against rules said as plain sets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from engine.decide.policy import Action, Target, authorize
from engine.forms.question import Question
from engine.forms.question_kinds import KINDS as KNOWN
from engine.journal.state import Asked
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.errors import MalformedJournal
from tests.prompt_state.test_authorize import ANA, BEN, CLEO, TEAM, TERMINAL, person

ADA = person("UADA")
EVE = person("UEVE")
PEOPLE = {actor.id: actor for actor in (ANA, BEN, CLEO, ADA, EVE)}
NEVER = [
    person("UBEN", is_bot=True),
    person("UBEN", is_app=True),
    person("UBEN", deleted=True),
    person("UBEN", is_restricted=True),
    person("UBEN", is_ultra_restricted=True),
    person("UBEN", is_stranger=True),
    person("UBEN", team_id="T2"),
    person("UBEN", edited=True),
    person("UBEN", facts_known=False),
    person("UANA", team_id="T2"),
    Actor.itself("timer"),
    Actor.pretend("@sre"),
    TERMINAL,
]
"""Nobody of these does anything to a question of this channel, whatever it lists."""

KINDS = ("ask", "input", "approval", "interrupted", "failed", "unheard_of")
ACTIONS: tuple[Action, ...] = ("answer", "decide", "resolve", "edit", "hand_over", "revoke")
LISTED = {"UBEN", "UCLEO"}
OWNERS = {"UANA", "UADA"}


def situations() -> Iterator[tuple[Asked, bool]]:
    """Questions with everything that the rules look at, and whether the requester is listed."""
    some: list[tuple[str, ...]] = [(), ("UBEN",), ("UCLEO", "UANA")]
    for kind, exclude, edited, excluded, by, mine in product(
        KINDS, (False, True), some, some, (None, "UBEN"), (False, True)
    ):
        entries = ("UBEN", "@sre", *(("requester",) if mine else ()))
        listed = entries if kind != "unheard_of" else None
        asked = Asked(
            prompt_id="p",
            path="gate",
            status="requested",
            requested_at="",
            kind=kind,
            approvers=listed,
            who=listed,
            exclude_requester=exclude,
            editors=edited,
            excluded=excluded,
            actor=by and {"id": by},
        )
        yield asked, mine


def may(action: Action, asked: Asked, mine: bool) -> set[str]:
    """Who may do this, as plainly as it can be said."""
    listed = (LISTED | ({"UANA"} if mine else set())) - set(asked.excluded)
    decide = listed - ({"UANA"} | set(asked.editors) if asked.exclude_requester else set())
    rules: dict[tuple[str, str], set[str]] = {
        ("answer", "answer"): listed,
        ("answer", "hand_over"): listed | OWNERS,
        ("decide", "decide"): decide,
        ("decide", "edit"): listed - ({"UANA"} if asked.exclude_requester else set()),
        ("decide", "hand_over"): decide,
        ("resolve", "resolve"): (listed | OWNERS) - set(asked.excluded),
        ("resolve", "hand_over"): (listed | OWNERS) - set(asked.excluded),
    }
    if action == "revoke":
        return OWNERS | ({asked.answered_by} if asked.answered_by else set())
    return rules.get((KNOWN[asked.kind].action if asked.kind in KNOWN else "nothing", action), set())


@pytest.mark.parametrize("action", ACTIONS)
def test_who_may_is_what_the_rules_say(action: Action) -> None:
    """In every cell of the matrix the policy allows whom the rules allow, and tells everybody else why not."""
    cells = 0
    for asked, mine in situations():
        target = Target(home_team=TEAM, requester_id="UANA", prompt=asked, admins=frozenset({"UADA"}))
        allowed = may(action, asked, mine)
        for actor in PEOPLE.values():
            verdict = authorize(actor, action, target)
            cells += 1
            assert verdict.allowed == (actor.id in allowed), (actor.id, action, asked)
            assert verdict.allowed or (verdict.reason or "").endswith((".", "?")), verdict
        for actor in NEVER:
            cells += 1
            assert not authorize(actor, action, target).allowed, (actor, action, asked)
    assert cells > 500


@pytest.mark.parametrize("broken", ["UBEN", 7, {"UBEN": 1}, ["UBEN", 7], True])
@pytest.mark.parametrize("field", ["editors", "excluded"])
def test_who_must_not_answer_cannot_be_read(broken: Json, field: str) -> None:
    """Where it cannot be read who must not answer, the question is refused, and nobody may."""
    for kind, listed in (("approval", "approvers"), ("ask", "who")):
        with pytest.raises(MalformedJournal):
            Question.from_wire({"kind": kind, listed: ["UBEN"], field: broken})


def test_the_reasons_say_what_to_do() -> None:
    """Whoever changed it, or handed it over, reads why somebody else decides now, and who."""
    names = {"UBEN": "Ben"}
    edited = Question(kind="approval", approvers=("UBEN", "@sre"), exclude_requester=True, editors=("UBEN",))
    target = Target(home_team=TEAM, requester_id="UANA", prompt=edited, names=names)
    assert (
        authorize(BEN, "decide", target).reason == "You changed this, so somebody else must approve it: @sre."
    )
    assert authorize(ANA, "decide", target).reason == (
        "You started this, so somebody else must approve it: Ben or @sre."
    )
    handed = Question(kind="approval", approvers=("UBEN", "UEVE"), excluded=("UBEN",))
    target = Target(home_team=TEAM, requester_id="UANA", prompt=handed, names=names)
    assert authorize(BEN, "decide", target).reason == "You handed this over; someone else answers it now."
