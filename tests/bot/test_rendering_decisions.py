"""Decisions as messages: what the gallery (`test_faces.py`) does not show, such as long commands and many calls."""

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
from tests.bot.rendering_cases import ANA, BEN, T0, T1, Flow, buttons, prompt, session, texts, wild
from tests.support.proving import tries

FLOW = Flow()
COVERS = {"nodeId": "tell", "path": "tell", "type": "shell", "text": "rm -rf \\\n  /srv/old", "digest": "d"}


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
