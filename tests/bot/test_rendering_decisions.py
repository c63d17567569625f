"""Decisions as messages: votes, what was changed, what will run, and the buttons that open something."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map
from msgspec.structs import replace

from bot.rendering.approvals import edited_text, handed_text, whole, whole_blocks
from bot.rendering.blocks import MOST_UNITS, size
from bot.rendering.calls import ALL, MOST_TOGETHER, beside, calls_message, pairs
from bot.rendering.prompts import question_message, session_face
from bot.rendering.text import shown
from bot.workspace.blocks import check_message, check_view
from engine.journal.state import Asked
from tests.bot.rendering_cases import (
    ANA,
    BEN,
    HOSTILE,
    T0,
    T1,
    Flow,
    buttons,
    card,
    prompt,
    session,
    texts,
    wild,
)
from tests.support.proving import tries

FLOW = Flow()
FORM = {
    "fields": [
        {"name": "region", "type": "string", "title": "Region", "default": "eu"},
        {"name": "count", "type": "integer", "title": "How many", "default": 3},
    ]
}
COVERS = {"nodeId": "tell", "path": "tell", "type": "shell", "text": "rm -rf \\\n  /srv/old", "digest": "d"}
DEV = {"id": "U0LOCALDEV", "name": "Dev"}


def vote(actor: dict[str, Any], word: str = "approve", reason: str | None = None) -> dict[str, Any]:
    """A vote as the session keeps it."""
    return {"actor": actor, "vote": word, "reason": reason, "at": T0}


def shown_as(one: Asked) -> str:
    """All mrkdwn of a prompt's message, open or closed."""
    return "\n".join(texts(question_message(session(one), one, FLOW).blocks))


def code(blocks: list[dict[str, Any]]) -> str:
    """What is in code blocks."""
    return "".join(
        piece["text"]
        for block in blocks
        if block["type"] == "rich_text"
        for part in block["elements"]
        for piece in part["elements"]
    )


def test_the_tally_names_who_approved_on_the_prompt_and_on_the_card() -> None:
    """With a quorum of two the first vote is on the message and on the card, and the reason of a rejection."""
    one = prompt(required=2, votes=(vote(BEN), vote(DEV, "reject", "too late")))
    said = shown_as(one)
    assert "1 of 2 approved: <@U0LOCALBEN> · rejected: <@U0LOCALDEV>" in said
    assert "<@U0LOCALDEV>: “too late”" in said
    on_card = "\n".join(texts(card(session(one), FLOW, T1).blocks))
    assert "1 of 2 approved: <@U0LOCALBEN>" in on_card


def test_an_answer_in_place_of_a_tool_is_written_in_a_view_and_stands_on_the_message() -> None:
    """A press of *Answer…* decides nothing: it opens the view. The closed message has the words."""
    options = [{"value": "approve", "label": "Approve", "style": None}]
    options.append({"value": "answer", "label": "Answer", "style": None})
    one = prompt(options=tuple(options))
    pressed = {
        b["text"]["text"]: b["action_id"] for b in buttons(question_message(session(one), one, FLOW).blocks)
    }
    assert pressed["Answer…"] == "sayso:open:answer:1"
    done = replace(one, status="answered", actor=BEN, answer={"value": "answer", "reason": "It is gone"})
    assert "entered this result instead:* by <@U0LOCALBEN>" in shown_as(done)
    assert "“It is gone”" in shown_as(done)


def test_before_the_first_vote_the_quorum_is_said() -> None:
    """A quorum is announced before anybody voted; where one person decides there is no tally."""
    assert "0 of 2 approved" in shown_as(prompt(required=2))
    assert "approved" not in shown_as(prompt())


def test_a_closed_quorum_names_all_who_decided_and_no_others() -> None:
    """The verdict names the people on its side, with the reason."""
    answer = {"value": "approve", "text": "Approve", "votes": [vote(BEN), vote(ANA, "reject"), vote(DEV)]}
    one = prompt(status="answered", required=2, answer=answer, actor=DEV, at=T1)
    assert "by <@U0LOCALBEN> and <@U0LOCALDEV>" in shown_as(one)


def test_a_rejection_says_why() -> None:
    """The reason stands with the verdict, and nothing in it is markup."""
    answer = {"value": "reject", "text": "Reject", "reason": HOSTILE}
    said = shown_as(prompt(status="answered", answer=answer, actor=BEN, at=T1))
    assert "🚫 *Rejected* by <@U0LOCALBEN>" in said
    assert "“&lt;!channel&gt;" in said
    assert "<!channel>" not in said


def test_what_was_changed_is_shown_as_old_and_new() -> None:
    """A field that people changed shows both values, one that they left shows one, and who changed it is named."""
    said = shown_as(prompt(form=FORM, values={"region": "us", "count": 3}, editors=["U0LOCALBEN"]))
    assert "• *Region:* eu → *us*" in said
    assert "• *How many:* 3" in said
    assert "→ *3*" not in said
    assert "<@U0LOCALBEN>" in said


def test_a_person_in_a_field_is_called_by_nobody_who_did_not_ask_for_it() -> None:
    """What is posted has the id of whoever was chosen, for a mention would call them; the closed message is an edit and
    shows the name."""
    owner = {"name": "owner", "title": "Owner", "type": "string", "format": "user", "default": "U0LOCALDEV"}
    form = {"fields": [owner]}
    values = {"owner": "U0LOCALCLEO"}
    said = shown_as(prompt(form=form, values=values))
    assert "U0LOCALDEV → *U0LOCALCLEO*" in said
    changed = edited_text(prompt(form=form), {"id": "U0LOCALBEN"}, {"owner": "U0LOCALDEV"}, values)
    assert "U0LOCALDEV → *U0LOCALCLEO*" in changed
    assert "<@U0LOCALCLEO>" not in said + changed
    answer = {"value": "approve", "text": "Approve", "values": values}
    closed = prompt(status="answered", form=form, values=values, answer=answer, actor=BEN, at=T1)
    assert "*<@U0LOCALCLEO>*" in shown_as(closed)


def test_the_difference_stays_when_the_prompt_is_closed() -> None:
    """What was approved says afterwards what had been changed before."""
    answer = {"value": "approve", "text": "Approve", "values": {"region": "us", "count": 3}}
    closed = prompt(status="answered", form=FORM, values={"region": "us"}, answer=answer, actor=BEN, at=T1)
    assert "eu → *us*" in shown_as(closed)


def test_what_will_run_stands_in_full_in_a_code_block() -> None:
    """The covered step's text is shown as it is, open and closed, where no markup counts."""
    for status in ("shown", "answered"):
        answer = {"value": "approve"} if status == "answered" else None
        one = prompt(status=status, covers=COVERS, answer=answer, actor=BEN, at=T1)
        assert code(question_message(session(one), one, FLOW).blocks) == COVERS["text"]


@pytest.mark.parametrize("message", ["Delete it?", "word " * 4_000])
def test_what_does_not_fit_is_said_to_be_cut_and_can_be_read_whole(message: str) -> None:
    """Of a text that is longer than a message the missing characters are counted, and a button shows all of it."""
    text = "".join(f"line {n}\n" for n in range(4_000))
    one = prompt(message=message, covers={**COVERS, "text": text})
    made = question_message(session(one), one, FLOW)
    check_message(made.text, made.blocks)
    part = code(made.blocks).removesuffix("…")
    assert text.startswith(part)
    assert len(part) > 3_000
    said = "\n".join(texts(made.blocks))
    assert f"{len(text) - len(part):,} more characters did not fit" in said
    opening = [
        block["accessory"] for block in made.blocks if block.get("accessory", {}).get("type") == "button"
    ]
    assert [(b["action_id"], b["value"]) for b in opening] == [("sayso:open:whole", "prompt-1|cafe12345678")]


@given(st.text(max_size=100).map(lambda text: text * 60))
@settings(max_examples=tries(50))
def test_the_whole_text_is_in_the_modal(text: str) -> None:
    """All that will run is in the modal's code blocks, cut nowhere, within a modal's limits."""
    blocks = whole_blocks(text)
    check_view({"type": "modal", "title": {"type": "plain_text", "text": "x"}, "blocks": blocks})
    assert all(size([block]) < 3_200 for block in blocks)
    assert code(blocks) == shown(text)


@pytest.mark.parametrize("char", ["x", "é", "🙂", '"'])
def test_what_even_a_modal_does_not_hold_is_counted(char: str) -> None:
    """Whatever it is written in, a text without end keeps a modal's limits, and what is missing is counted."""
    fields = [{"name": f"f{n}", "type": "string", "title": "T", "default": char * 3_000} for n in range(300)]
    one = prompt(form={"fields": fields}, values={}, covers={**COVERS, "text": char * 400_000})
    blocks = whole(session_face(session(one), one, FLOW))
    check_view({"type": "modal", "title": {"type": "plain_text", "text": "x"}, "blocks": blocks})
    start = next(n for n, block in enumerate(blocks) if "This will run" in str(block.get("text")))
    missing = 400_000 - code(blocks[start:]).count(char)
    assert 0 < missing < 400_000
    assert f"*Cut off:* {missing:,} more characters not shown" in texts(blocks)[-1]
    assert "*Cut off:*" in "".join(texts(blocks[:start]))


def test_rejecting_opens_a_question_where_a_reason_is_needed() -> None:
    """The button of a rejection that needs a reason opens a modal; approving stays one press."""
    one = prompt(requireReason=True)
    found = buttons(question_message(session(one), one, FLOW).blocks)
    assert [(b["text"]["text"], b["action_id"], b["value"]) for b in found] == [
        ("Approve", "sayso:option:0", "prompt-1|cafe12345678|0"),
        ("Reject…", "sayso:open:answer:1", "prompt-1|cafe12345678|1"),
    ]


def test_what_may_be_changed_has_a_button() -> None:
    """An approval with editable fields has Edit behind its two buttons."""
    one = prompt(form=FORM, editable=["region"])
    found = buttons(question_message(session(one), one, FLOW).blocks)
    assert [b["text"]["text"] for b in found] == ["Approve", "Reject", "Edit…"]
    assert found[2]["action_id"] == "sayso:open:edit"


def test_the_menu_hands_a_prompt_over_and_rejects_with_a_reason() -> None:
    """Every open prompt can be handed over; an approval can also be rejected with words where none are needed."""

    def entries(one: Asked) -> list[str]:
        menu = question_message(session(one), one, FLOW).blocks[0]["accessory"]
        assert menu["action_id"] == "sayso:open:more"
        return [option["value"] for option in menu["options"]]

    assert entries(prompt("ask")) == ["hand|prompt-1|cafe12345678"]
    assert entries(prompt()) == ["answer|prompt-1|cafe12345678|1", "hand|prompt-1|cafe12345678"]
    assert entries(prompt(requireReason=True)) == ["hand|prompt-1|cafe12345678"]


def test_whoever_handed_it_over_is_not_called_any_more() -> None:
    """The first line calls the new person and not the one who handed over; another one says who did."""
    handed = [{"by": BEN, "to": "U0LOCALDEV", "at": T0}]
    one = prompt(approvers=["U0LOCALBEN", "U0LOCALDEV"], excluded=["U0LOCALBEN"], handed=handed)
    first, *rest = shown_as(one).splitlines()
    assert "<@U0LOCALDEV>" in first
    assert "<@U0LOCALBEN>" not in first
    assert any("<@U0LOCALBEN>" in line and "<@U0LOCALDEV>" in line for line in rest)


@given(wild, wild)
def test_what_the_thread_is_told_is_inert(old: str, new: str) -> None:
    """Titles and values of an edit, and the question of a hand-over, ping nobody and link nowhere."""
    one = prompt(form={"fields": [{"name": "x", "type": "string", "title": old}]}, message=new)
    for said in (edited_text(one, ANA, {"x": old}, {"x": new}), handed_text(one, ANA, "U0LOCALBEN")):
        for forbidden in ("<!", "<http", "<#"):
            assert forbidden not in said
    assert json.dumps(edited_text(one, ANA, {"x": old}, {"x": new}))


def test_an_open_message_leaves_room_for_everything() -> None:
    """Long values, many fields, a long question and a long command together stay below Slack's limit."""
    fields = [{"name": f"f{n}", "type": "string", "title": "T" * 90, "default": "d" * 500} for n in range(80)]
    values = {f"f{n}": "v" * 500 for n in range(80)}
    one = prompt(
        message="m" * 20_000,
        form={"fields": fields},
        values=values,
        covers={**COVERS, "text": "c" * 50_000},
        votes=tuple(vote({"id": f"U0VOTER{n}"}, "approve", "r" * 900) for n in range(30)),
        required=40,
    )
    for made in (
        question_message(session(one), one, FLOW),
        question_message(session(one), replace(one, status="cancelled"), FLOW),
    ):
        check_message(made.text, made.blocks)
        assert size(made.blocks) <= MOST_UNITS


def calls_of(count: int, text: str, **more: Any) -> list[Asked]:
    """Calls of one answer that wait."""
    four = [
        {"value": value, "label": value.title(), "style": None} for value in ("approve", "reject", "answer")
    ]
    first = prompt(
        options=tuple(four),
        covers={**COVERS, "text": text},
        tool={"name": "shell"},
        path="a/turn[1]/tool[0]",
        **more,
    )
    return [
        replace(
            first, prompt_id=f"prompt-{n:016x}", nonce=f"{n:032x}", number=n + 1, path=f"a/turn[1]/tool[{n}]"
        )
        for n in range(count)
    ]


@settings(max_examples=tries(20), deadline=None)
@given(text=st.one_of(wild, st.text(max_size=9_000)), count=st.integers(2, 5))
def test_a_message_of_several_calls_keeps_slacks_limits_and_every_button(text: str, count: int) -> None:
    """Whatever the calls are, Slack takes the message, each call has its buttons, and what is cut is said to be."""
    calls = calls_of(
        count, text, editors=("U1",), votes=(vote(BEN, "reject", text[:500] or "no"),), required=3
    )
    made = calls_message(session(calls[0]), calls, FLOW, None, T1)
    check_message(made.text, made.blocks)
    assert size(made.blocks) <= MOST_UNITS
    pressed = [b for b in buttons(made.blocks) if b["action_id"] == "sayso:option:0"]
    assert [b["value"].partition("|")[0] for b in pressed] == [one.prompt_id for one in calls]
    every = next(b for b in buttons(made.blocks) if b["action_id"] == ALL)
    assert pairs(every["value"]) == [(one.prompt_id, one.nonce) for one in calls]
    whole_text = text and shown(text) in code(made.blocks)
    assert whole_text or not text.strip() or "Cut off" in "\n".join(texts(made.blocks))


@settings(max_examples=tries(20), deadline=None)
@given(text=st.one_of(wild, st.text(max_size=9_000)), message=wild)
def test_ten_requests_of_an_agent_fit_on_one_message(text: str, message: str) -> None:
    """However long the reasons and the arguments are, each has its buttons, and what is cut is said to be."""
    calls = [
        replace(
            one,
            tool=None,
            message=message,
            options=one.options[:2],
            covers={**(one.covers or {}), "type": "call"},
        )
        for one in calls_of(MOST_TOGETHER, text, votes=(vote(BEN, "reject", text[:500] or "no"),), required=3)
    ]
    assert all(one.is_request for one in calls)
    made = calls_message(session(calls[0]), calls, FLOW, None, T1)
    check_message(made.text, made.blocks)
    assert size(made.blocks) <= MOST_UNITS
    every = next(b for b in buttons(made.blocks) if b["action_id"] == ALL)
    assert pairs(every["value"]) == [(one.prompt_id, one.nonce) for one in calls]
    whole_text = text and shown(text) in code(made.blocks)
    assert whole_text or not text.strip() or "Cut off" in "\n".join(texts(made.blocks))


def test_seven_calls_stand_on_two_messages_in_their_order() -> None:
    """Five and two; a call that is asked about later, or whose message was deleted, stands alone."""
    calls = calls_of(7, "ls")
    state = replace(session(calls[0]), prompts=Map({one.prompt_id: one for one in reversed(calls)}))
    assert beside(state, calls[0]) == calls[:5]
    assert beside(state, calls[6]) == calls[5:]
    gone = replace(calls[1], reposts=1)
    later = replace(calls[6], requested_at=T1)
    state = replace(state, prompts=state.prompts.set(gone.prompt_id, gone).set(later.prompt_id, later))
    assert beside(state, gone) == []
    assert beside(state, later) == []
    assert gone.prompt_id not in [one.prompt_id for one in beside(state, calls[0])]


_TORN = re.compile(r"<[^<>]*$|&(?!amp;|lt;|gt;)")
"""The beginning of a mention or a link, or an entity that is not a whole one."""


@pytest.mark.parametrize("end", ["<@U0LOCALBEN> &amp; <https://example.com/a/long/path|a link> and so on"])
def test_what_is_cut_on_a_message_of_several_calls_is_cut_between_mentions_and_entities(end: str) -> None:
    """Wherever the room ends: no half of a mention, a link or an entity is shown to people."""
    many = tuple(vote({**BEN, "id": f"U0LOCALBEN{n}"}, "approve") for n in range(12))
    for room in range(40, 320):
        message = f"{'x' * room}{end}\n> {'y' * (room % 120)}{end}"
        few = [replace(one, message=message) for one in calls_of(2, "ls", votes=many, required=13)]
        covers = {**(few[0].covers or {}), "type": "call"}
        ten = [
            replace(one, message=message, tool=None, options=one.options[:2], covers=covers)
            for one in calls_of(MOST_TOGETHER, "ls", votes=many, required=13)
        ]
        for calls in (few, ten):
            made = calls_message(session(calls[0]), calls, FLOW, None, T1)
            assert [text for text in texts(made.blocks) if _TORN.search(text)] == []
