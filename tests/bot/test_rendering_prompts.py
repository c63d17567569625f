"""Prompts as messages: what the gallery (`test_faces.py`) does not show, such as hostile texts and that anything fits."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from immutables import Map
from msgspec.structs import replace

from bot.rendering import home, phrases, waiting
from bot.rendering.blocks import MOST_UNITS, block_key, size
from bot.rendering.clocks import deleted_too_often
from bot.rendering.notes import duplicate, message_blocks, note
from bot.rendering.prompts import question_message
from bot.rendering.text import for_reader
from bot.workspace.blocks import check_message
from engine.forms.question_kinds import KINDS
from engine.journal.state import Asked, TimerRun
from engine.language.codec import Json
from prompt_state.question_row import PromptKind, PromptState, prompt_row
from tests.bot.rendering_cases import (
    ANA,
    HOSTILE,
    T0,
    T1,
    Flow,
    buttons,
    plain_texts,
    prompt,
    prompts,
    session,
    texts,
    wild,
)
from tests.support.proving import tries

FLOW = Flow()


def shown_as(one: Asked, **options: Any) -> str:
    """All mrkdwn of a prompt's message, open or closed."""
    return "\n".join(texts(question_message(session(one), one, FLOW, **options).blocks))


def test_every_kind_of_question_has_its_words() -> None:
    """Wherever a question is shown, it is said what it is; the Home shows each kind under one heading."""
    assert set(KINDS) == set(get_args(PromptKind))
    assert len({(kind.icon, kind.label) for kind in KINDS.values()}) == len(KINDS)
    shown_under = [action for _, action in home.KINDS.values() if action is not None]
    assert sorted(shown_under) == sorted({kind.action for kind in KINDS.values()})


def test_the_message_keeps_its_markup_and_nothing_is_escaped_twice() -> None:
    """A flow's own mrkdwn, whose values were escaped when they were evaluated, is shown as it is."""
    assert "*now*: a &lt;b&gt; <https://x.example|x>" in shown_as(
        prompt(message="*now*: a &lt;b&gt; <https://x.example|x>")
    )


def test_a_requester_who_may_not_decide_is_not_called() -> None:
    """Listed as `requester`, by id or by e-mail address, a barred requester is left out of those who are asked."""
    names = {"ana@example.com": "U0LOCALANA", "ben@example.com": "U0LOCALBEN"}
    listed = ["requester", "U0LOCALANA", "ana@example.com", "ben@example.com"]
    barred = prompt(approvers=listed, excludeRequester=True)
    assert shown_as(barred, ids=names).splitlines()[0] == "🔐 *Approval needed* from <@U0LOCALBEN>"
    everybody = shown_as(prompt(approvers=listed), ids=names).splitlines()[0]
    assert everybody == "🔐 *Approval needed* from <@U0LOCALANA> and <@U0LOCALBEN>"


ALIKE = [
    "Roll back the checkout service in every region of the European Union and of the " + end
    for end in ("UK", "US")
]


@pytest.mark.parametrize("more", [{}, {"asks": {"label": "Why?"}}])
@pytest.mark.parametrize("count", [2, 25, 26])
def test_options_longer_than_a_button_are_told_apart(count: int, more: dict[str, Json]) -> None:
    """Labels that a button or a menu cuts have numbers there, and stand whole in the message; others stay as they are."""
    labels = [*ALIKE, *(f"Region {n}" for n in range(count - 2))]
    options = [{"value": n, "label": label, "style": None, **more} for n, label in enumerate(labels)]
    one = prompt("ask", options=options, acceptsText=False)
    made = question_message(session(one), one, FLOW)
    check_message(made.text, made.blocks)
    found = buttons(made.blocks)
    told = [each["text"]["text"] for each in (found[0]["options"] if count > 25 else found)]
    assert [label[:3] for label in told[:2]] == ["1. ", "2. "]
    assert [label.rstrip("…") for label in told[2:]] == labels[2:]
    whole = "\n".join(texts(made.blocks))
    assert all(f"{n}. {label}" in whole for n, label in enumerate(ALIKE, 1))
    outside = waiting.question_blocks(
        waiting.Waiting(PromptState.from_bytes(prompt_row(session(one), one).body), "demo")
    )
    assert count > 5 or all(f"{n}. {label}" in texts(outside)[0] for n, label in enumerate(ALIKE, 1))
    assert count > 5 or [each["text"]["text"][:3] for each in buttons(outside)[:2]] == ["1. ", "2. "]


def test_a_hundred_long_options_stay_apart_and_fit() -> None:
    """Labels that must be cut get their number, so two that begin alike can be told apart."""
    options = [{"value": n, "label": "x" * 75, "style": None} for n in range(130)]
    one = prompt("ask", options=options, acceptsText=False)
    made = question_message(session(one), one, FLOW)
    (menu,) = buttons(made.blocks)
    labels = [option["text"]["text"] for option in menu["options"]]
    assert len(set(labels)) == len(labels) == 100
    assert any("30 more options" in text for text in texts(made.blocks))
    check_message(made.text, made.blocks)


def test_an_answer_is_inert() -> None:
    """What somebody answered is plain text: no mention, no link, no markup, and bidi controls spelled out."""
    one = prompt("ask", "answered", answer={"text": HOSTILE}, actor=ANA, at=T1)
    made = question_message(session(one), one, FLOW)
    assert "<!channel>" not in "\n".join(texts(made.blocks)) + made.text
    assert "evil.example|" not in "\n".join(texts(made.blocks))
    assert any("<!channel>" in text and "\\u202e" in text for text in plain_texts(made.blocks))


@pytest.mark.parametrize(
    ("fields", "repeated"),
    [
        ({"answer_key": "message:T1:C1:1795300900.000200"}, False),
        ({"answer_key": "message:T1:C1:1795300900.000000"}, True),
        ({"answer_key": "message:T1:C2:1795300900.000200"}, True),
        ({"answer_key": "click:T1:1795300900.000100:U0LOCALANA:1"}, True),
        ({"answer_key": "view:T1:V1"}, True),
        ({"answer_key": None}, True),
        ({"answer_key": "message:T1:C1:1795300900.000200", "shown": None}, True),
        (
            {
                "answer_key": "message:T1:C1:1795300900.000200",
                "answer": {"text": "fine", "label": "fine", "value": "eu"},
            },
            True,
        ),
        # There a message outside of the thread may have been the answer, which its key does not say.
        ({"shown": {"channel": "D1", "ts": "1.0"}, "answer_key": "message:T1:D1:2.0"}, True),
    ],
    ids=[
        "a reply",
        "above",
        "elsewhere",
        "a button",
        "a form",
        "a terminal",
        "not shown yet",
        "a choice",
        "direct",
    ],
)
def test_words_that_stand_below_a_closed_question_are_not_repeated(
    fields: dict[str, Any], repeated: bool
) -> None:
    """Of a reply in the thread the question says who and when; what came otherwise, and what a reply chose, it shows."""
    at = {"channel": "C1", "ts": "1795300900.000100"}
    one = prompt(
        "ask", "answered", **{"answer": {"text": "fine"}, "actor": ANA, "at": T1, "shown": at, **fields}
    )
    made = question_message(session(one), one, FLOW)
    assert ("fine" in plain_texts(made.blocks)) is repeated
    assert made.text.startswith("☑️ *Answered* by <@U0LOCALANA> · <!date^1795300992^")
    assert ("fine" in made.text) is repeated
    assert (", in the reply below" in made.text) is not repeated


def test_names_and_reasons_are_inert() -> None:
    """Neither a person's name nor a reason can carry a mention."""
    eve = {"id": "local:eve", "name": HOSTILE}
    answered = prompt(status="answered", answer={"value": "approve"}, actor=eve, at=T1)
    assert "<!channel>" not in shown_as(answered)
    assert "<!channel>" not in shown_as(prompt(status="cancelled", at=T1), reason=HOSTILE)


@settings(max_examples=tries(60))
@given(prompts())
def test_any_prompt_fits(one: Asked) -> None:
    """Open or closed, with any text and any number of options, Slack's limits are kept and buttons are there."""
    for asked in (one, replace(one, status="shown")):
        made = question_message(session(asked), asked, FLOW, now=T0, reason="x")
        check_message(made.text, made.blocks, limit=4000)
        assert size(made.blocks) <= MOST_UNITS
        assert bool(buttons(made.blocks)) == (asked.open and bool(one.options or one.form))


@settings(max_examples=tries(60))
@given(wild)
def test_any_text_fits_a_message(text: str) -> None:
    """Text of any length and kind becomes a message that Slack takes."""
    made = note(text, "note:1")
    check_message(made.text, made.blocks, limit=4000)
    assert size(made.blocks) <= MOST_UNITS


def test_long_text_is_split_and_longer_text_is_cut_visibly() -> None:
    """Above 3000 characters there are several sections; above about 12 000 a notice says how much is missing."""
    whole = message_blocks("word " * 1600)
    assert [block["type"] for block in whole] == ["section"] * 3
    assert "".join(texts(whole)).count("word") == 1600
    assert "more characters not shown" in texts(message_blocks("word " * 10_000))[-1]


def test_a_duplicate_can_be_neither_pressed_nor_taken_for_the_first() -> None:
    """A second copy loses its buttons and its key."""
    made = duplicate("prompt:1")
    assert buttons(made.blocks) == []
    assert made.metadata is not None
    assert made.metadata["event_type"] != "sayso_post"
    assert made.blocks[0]["block_id"] != block_key("prompt:1")


def test_deleting_a_question_again_and_again_names_the_word_that_ends_the_run() -> None:
    """`stop` would only pause it."""
    one = prompt(reposts=3)
    assert "to end the run, write `cancel` in the thread" in deleted_too_often(session(one), one, Flow())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Only U0LOCALCLEO and @sre can approve this.", "Only <@U0LOCALCLEO> and @sre can approve this."),
        (
            "at 2026-11-21 22:40 UTC: <b>",
            "at <!date^1795300800^{date_short_pretty} at {time}|2026-11-21 22:40 UTC>: &lt;b&gt;",
        ),
        (
            "until 2026-11-21T22:40:00.000Z",
            "until <!date^1795300800^{date_short_pretty} at {time}|2026-11-21 22:40 UTC>",
        ),
        ("in 2026-99-99 99:99 UTC", "in 2026-99-99 99:99 UTC"),
        ("UNAVAILABLE: <@here>", "UNAVAILABLE: &lt;@here&gt;"),
    ],
)
def test_words_of_the_policy_name_people_and_times_as_slack_shows_them(text: str, wanted: str) -> None:
    """Ids become mentions and moments the reader's own time; everything else is inert."""
    assert for_reader(text) == wanted


def test_a_question_that_begins_with_code_does_not_open_code_in_what_follows() -> None:
    """The first line of words is told; a fence without its end would take in all that is below."""
    asked = prompt(message="```\nrm -rf /srv\n```\nRun this?")
    told = phrases.status_text([(session(asked), Flow()), (session(asked), Flow())], T1)
    assert "rm -rf /srv" in told
    assert "`" not in told


def test_the_runs_of_a_channel_say_until_when_a_timer_runs() -> None:
    """A run that waits for a time waits for something too: it says for what, and until when."""
    waits = replace(
        session(),
        phase="waiting",
        timers=Map({"t": TimerRun("t", "rest", "2026-11-27T04:00:00.000Z", "wait", None)}),
    )
    [head, timer] = phrases.running_text([(waits, Flow())]).splitlines()
    assert (head[-10:], timer[-27:]) == ("is waiting", "2026-11-27 04:00 UTC>: rest")


def test_the_age_of_a_run_is_told_as_every_other_duration() -> None:
    """192 seconds look the same everywhere."""
    assert "started 3m 12s ago" in phrases.status_text([(session(), Flow())], T1)
