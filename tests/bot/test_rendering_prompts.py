"""Prompts as messages: what people see, what buttons carry, and that anything fits."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from bot.rendering import home, phrases, waiting
from bot.rendering.blocks import MOST_UNITS, block_key, size
from bot.rendering.clocks import deleted_too_often, reminder
from bot.rendering.notes import duplicate, message_blocks, note
from bot.rendering.prompts import question_message
from bot.rendering.text import for_reader
from bot.workspace.blocks import check_message
from engine.forms.question_kinds import KINDS
from engine.journal.state import Asked
from engine.language.codec import Json
from prompt_state.question_row import PromptKind, PromptState, prompt_row
from tests.bot.rendering_cases import (
    ANA,
    BEN,
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
    """All mrkdwn of an open prompt's message."""
    return "\n".join(texts(question_message(session(one), one, FLOW, **options).blocks))


def closed_as(one: Asked, **options: Any) -> str:
    """All mrkdwn of a closed prompt's message."""
    return "\n".join(texts(question_message(session(one), one, FLOW, **options).blocks))


def test_every_kind_of_question_has_its_words() -> None:
    """Wherever a question is shown, it is said what it is; the Home shows each kind under one heading."""
    assert set(KINDS) == set(get_args(PromptKind))
    assert len({(kind.icon, kind.label) for kind in KINDS.values()}) == len(KINDS)
    shown_under = [action for _, action in home.KINDS.values() if action is not None]
    assert sorted(shown_under) == sorted({kind.action for kind in KINDS.values()})


def test_a_prompt_carries_its_key_where_it_can_be_found_again() -> None:
    """The outbox key is in the metadata and in the first block's id, and nothing else does."""
    made = question_message(session(prompt()), prompt(), FLOW)
    assert made.blocks[0]["block_id"] == "prompt:prompt-1"
    assert made.metadata == {"event_type": "sayso_post", "event_payload": {"key": "prompt:prompt-1"}}


def test_buttons_have_the_words_that_people_read_and_carry_only_ids() -> None:
    """An approval shows its two labels in their styles; a value is prompt, nonce and index."""
    found = buttons(question_message(session(prompt()), prompt(), FLOW).blocks)
    assert [(b["text"]["text"], b["style"], b["action_id"], b["value"]) for b in found] == [
        ("Approve", "primary", "sayso:option:0", "prompt-1|cafe12345678|0"),
        ("Reject", "danger", "sayso:option:1", "prompt-1|cafe12345678|1"),
    ]


def test_whoever_is_asked_is_mentioned() -> None:
    """Approvers are called in the first line, groups by their id where it is known; text asks the requester."""
    assert (
        "<!subteam^S0LOCALSRE>"
        in shown_as(prompt(approvers=["@sre"]), ids={"@sre": "S0LOCALSRE"}).splitlines()[0]
    )
    assert "<@U0LOCALANA>" in shown_as(prompt("ask")).splitlines()[0]


def test_the_message_keeps_its_markup_and_nothing_is_escaped_twice() -> None:
    """A flow's own mrkdwn, whose values were escaped when they were evaluated, is shown as it is."""
    assert "*now*: a &lt;b&gt; <https://x.example|x>" in shown_as(
        prompt(message="*now*: a &lt;b&gt; <https://x.example|x>")
    )


def test_a_question_for_text_says_how_to_answer() -> None:
    """With free text there are no buttons but the hint to reply, with the number where the prompt has one."""
    one = prompt("ask", number=3)
    assert buttons(question_message(session(one), one, FLOW).blocks) == []
    assert "Reply in this thread" in shown_as(one)
    assert "`#3: your answer`" in shown_as(one)


def test_a_question_with_choices_says_that_other_words_count_too() -> None:
    """Beside the buttons stands the hint to reply, where any reply is an answer, and only there."""
    one = prompt("ask", number=3, options=[{"value": "eu", "label": "Europe"}], acceptsText=True)
    assert len(buttons(question_message(session(one), one, FLOW).blocks)) == 1
    assert "Choose one, or *reply in this thread* with your own answer" in shown_as(one)
    assert "`#3: your answer`" in shown_as(one)
    plain = prompt("ask", options=[{"value": "eu", "label": "Europe"}], acceptsText=False)
    assert "reply in this thread" not in shown_as(plain).lower()


def test_who_may_not_decide_stands_below() -> None:
    """Where the flow excludes the requester the small print says so; else it says nothing of who may answer."""
    wanted = "<@U0LOCALANA> started this and can't approve it."
    assert wanted in shown_as(prompt(excludeRequester=True))
    assert "started this" not in shown_as(prompt())


def test_a_cap_of_everybody_says_whom_it_affects() -> None:
    """It is no approval: an admin who started the run may raise it, so nobody is said to be left out."""
    said = shown_as(prompt("budget", scope="day", excludeRequester=True))
    assert ("This affects everybody's runs." in said, "approve" in said) == (True, False), said


def test_a_requester_who_may_not_decide_is_not_called() -> None:
    """Listed as `requester`, by id or by e-mail address, a barred requester is left out of those who are asked."""
    names = {"ana@example.com": "U0LOCALANA", "ben@example.com": "U0LOCALBEN"}
    listed = ["requester", "U0LOCALANA", "ana@example.com", "ben@example.com"]
    barred = prompt(approvers=listed, excludeRequester=True)
    assert shown_as(barred, ids=names).splitlines()[0] == "🔐 *Approval needed* from <@U0LOCALBEN>"
    everybody = shown_as(prompt(approvers=listed), ids=names).splitlines()[0]
    assert everybody == "🔐 *Approval needed* from <@U0LOCALANA> and <@U0LOCALBEN>"


@pytest.mark.parametrize(
    ("fields", "now", "wanted"),
    [
        ({"deadline": T1, "onTimeout": "reject"}, None, "<!date^1795300992^"),
        ({"timeoutSeconds": 1800}, T0, "<!date^1795302600^"),
    ],
)
def test_the_deadline_is_shown_as_a_date(fields: dict[str, Any], now: str | None, wanted: str) -> None:
    """The deadline is the one that is set, or the one that will be set when the prompt is shown."""
    assert wanted in shown_as(prompt(**fields), now=now)


def test_the_place_is_shown() -> None:
    """Flow and node are in the last line; the session is named on the card."""
    assert shown_as(prompt()).splitlines()[-1] == "rollback › Gate"


def test_from_26_options_on_there_is_a_menu() -> None:
    """Up to 25 options are buttons; more are one menu with the same values."""
    many = [{"value": n, "label": f"Region {n}", "style": None} for n in range(26)]
    few = prompt("ask", options=many[:25], acceptsText=False)
    lots = prompt("ask", options=many, acceptsText=False)
    assert len(buttons(question_message(session(few), few, FLOW).blocks)) == 25
    (menu,) = buttons(question_message(session(lots), lots, FLOW).blocks)
    assert menu["type"] == "static_select"
    assert menu["action_id"].startswith("sayso:option:")
    assert menu["options"][25] == {
        "text": {"type": "plain_text", "text": "Region 25"},
        "value": "prompt-1|cafe12345678|25",
    }


ALIKE = [
    "Roll back the checkout service in every region of the European Union and of the " + end
    for end in ("UK", "US")
]


@pytest.mark.parametrize("more", [{}, {"asks": {"label": "Why?"}}])
@pytest.mark.parametrize("count", [2, 25, 30])
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


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (prompt(status="answered", answer={"value": "approve"}, actor=BEN, at=T1), "by <@U0LOCALBEN> · "),
        (prompt(status="answered", answer={"value": "reject"}, actor=BEN, at=T1), "by <@U0LOCALBEN> · "),
        (prompt("ask", "answered", answer={"text": "fine"}, actor=ANA, at=T1), "by <@U0LOCALANA> · "),
        (prompt(status="expired", onTimeout="reject", at=T1), " · "),
        (prompt(status="cancelled", at=T1), "the session is aborted · "),
    ],
)
def test_a_closed_prompt_says_who_what_and_when_and_has_no_buttons(one: Asked, wanted: str) -> None:
    """Every way in which a prompt closes has its line, the question stays, and nothing can be pressed."""
    made = question_message(session(one), one, FLOW, reason="the session is aborted")
    assert f"{wanted}<!date^1795300992^" in "\n".join(texts(made.blocks))
    assert "Roll back?" in texts(made.blocks)
    assert buttons(made.blocks) == []
    assert made.blocks[0]["block_id"] == "prompt:prompt-1"


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
    ],
    ids=["a reply", "above", "elsewhere", "a button", "a form", "a terminal", "not shown yet", "a choice"],
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


def test_words_of_a_direct_message_are_repeated() -> None:
    """There a message outside of the thread may have been the answer, which its key does not say."""
    said: dict[str, Any] = {"shown": {"channel": "D1", "ts": "1.0"}, "answer_key": "message:T1:D1:2.0"}
    one = prompt("ask", "answered", answer={"text": "fine"}, actor=ANA, at=T1, **said)
    assert "fine" in plain_texts(question_message(session(one), one, FLOW).blocks)


def test_names_and_reasons_are_inert() -> None:
    """Neither a person's name nor a reason can carry a mention."""
    eve = {"id": "local:eve", "name": HOSTILE}
    answered = prompt(status="answered", answer={"value": "approve"}, actor=eve, at=T1)
    assert "<!channel>" not in closed_as(answered)
    assert "<!channel>" not in closed_as(prompt(status="cancelled", at=T1), reason=HOSTILE)


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


def test_a_question_for_files_says_how_many_and_how_large() -> None:
    """Whoever is asked sees what may be dropped into the thread, and whether words do as well."""
    for text, words in (
        (False, "📎 *Add to this thread:* up to 2 files of at most 1MiB each"),
        (True, "📎 *Reply in this thread* with text or up to 2 files of at most 1MiB each"),
    ):
        asked = prompt("ask", acceptsText=text, acceptsFiles=True, maxFiles=2, maxSize=2**20)
        assert words in str(question_message(session(asked), asked, FLOW).blocks)


def test_where_no_button_can_be_shown_a_question_for_files_says_to_reply() -> None:
    """It has none, so it names none."""
    asked = prompt("ask", acceptsText=False, acceptsFiles=True, maxFiles=1, maxSize=2**20)
    assert question_message(session(asked), asked, FLOW).plain.startswith("Reply here")


def test_a_question_that_expired_names_the_step_as_people_know_it() -> None:
    """Where it continues is said by the step's name, as while it was open."""
    expired = prompt(status="expired", onTimeout="goto:tell", at=T1)
    assert "the run continues at *Tell*" in closed_as(expired)


@pytest.mark.parametrize(
    ("count", "wanted"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (21, "21st"),
        (113, "113th"),
    ],
)
def test_reminders_are_counted_as_people_count(count: int, wanted: str) -> None:
    """The number of a reminder has its right ending, however many there were."""
    one = prompt()
    assert f"· {wanted} reminder" in reminder(session(one), one, Flow(), {}, count, None)


def test_whoever_deletes_a_question_again_and_again_is_told_the_word_that_ends_the_run() -> None:
    """`stop` would only pause it."""
    one = prompt(reposts=3)
    assert "`cancel` in the thread ends the run" in deleted_too_often(session(one), one, Flow())


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


def test_the_age_of_a_run_is_told_as_every_other_duration() -> None:
    """192 seconds look the same everywhere."""
    assert "started 3m 12s ago" in phrases.status_text([(session(), Flow())], T1)
