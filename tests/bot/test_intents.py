"""Which rows a step writes for Slack."""

from __future__ import annotations

from typing import Any

import pytest
from immutables import Map
from msgspec.structs import replace

from bot.intents.session_rows import ephemeral_row, note_row, respond_row, root_row, slack_intents
from bot.intents.slots import SHOW
from engine.journal import events as ev
from engine.journal.records import PutOutbox
from engine.language.codec import decode
from tests.bot.rendering_cases import BEN, T1, THREAD, prompt, session


def at(seq: int, kind: Any, **fields: Any) -> Any:
    """An event."""
    return kind(seq=seq, timestamp=T1, path="gate", **fields)


def kinds(rows: list[PutOutbox]) -> list[tuple[str, str, str]]:
    """Kind, key and lane of rows."""
    return [(row.kind, row.key, row.lane) for row in rows]


ASKED = at(5, ev.PromptRequested, prompt_id="prompt-1", prompt={})
CARD = (SHOW, "card:session-1", "card:session-1")
QUESTION = (SHOW, "prompt:prompt-1", THREAD["key"])


def test_a_prompt_is_shown_in_its_thread_after_the_card() -> None:
    """The card heads the thread; the prompt goes into the thread's lane with ids and nothing else."""
    rows = slack_intents(session(), session(prompt()), [ASKED])
    assert kinds(rows) == [CARD, QUESTION]
    about = {"sessionId": "session-1", "promptId": "prompt-1", "seq": 5, "live": True}
    assert decode(rows[1].payload) == about
    assert all(row.replace for row in rows)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (at(6, ev.PromptAnswered, prompt_id="prompt-1", actor=BEN, answer={"value": "approve"}), None),
        (at(6, ev.PromptExpired, prompt_id="prompt-1", outcome="fail"), None),
        (
            at(6, ev.PromptCancelled, prompt_id="prompt-1", reason="the session is aborted"),
            "the session is aborted",
        ),
    ],
)
def test_a_prompt_that_closes_is_closed_in_its_thread(event: Any, reason: str | None) -> None:
    """Answered, expired or withdrawn: one row in the same lane, with the reason where there is one."""
    rows = slack_intents(session(prompt()), session(prompt(status="answered")), [event])
    assert kinds(rows) == [CARD, QUESTION]
    assert decode(rows[1].payload).get("reason") == reason


def test_a_step_touches_a_question_once_whatever_happens_to_it() -> None:
    """The vote that decides and the decision are one change, through the press that carried both."""
    voted = at(6, ev.PromptVoted, prompt_id="prompt-1", actor=BEN, vote="approve", key="click:1")
    answered = at(
        7, ev.PromptAnswered, prompt_id="prompt-1", actor=BEN, answer={"value": "approve"}, key="click:1"
    )
    rows = slack_intents(session(prompt()), session(prompt(status="answered")), [voted, answered])
    assert kinds(rows) == [CARD, QUESTION]
    assert {name: decode(rows[1].payload)[name] for name in ("live", "press")} == {
        "live": True,
        "press": "click:1",
    }


def test_a_question_that_is_shown_is_not_drawn_again() -> None:
    """That its message stands changes nothing of it."""
    event = at(6, ev.PromptShown, prompt_id="prompt-1", shown={"channel": "C", "ts": "1"})
    assert kinds(slack_intents(session(prompt()), session(prompt(status="shown")), [event])) == [CARD]


def test_buttons_that_stay_right_are_in_no_hurry() -> None:
    """A vote that decides nothing waits behind what people wait for."""
    event = at(6, ev.PromptVoted, prompt_id="prompt-1", actor=BEN, vote="approve", key="view:1")
    _, row = slack_intents(session(prompt()), session(prompt(reminders=1)), [event])
    assert decode(row.payload)["live"] is False


def test_a_step_that_changes_nothing_on_the_card_does_not_touch_it() -> None:
    """A message that is only kept writes no row."""
    before = session(prompt())
    event = at(6, ev.SessionMessage, message="hello", actor=BEN, key="k")
    assert slack_intents(before, replace(before, seq=6), [event]) == []


def test_the_card_names_the_state_that_it_needs() -> None:
    """The card's row carries the seq from which on the state has what changed."""
    (row,) = slack_intents(session(), session(nodes=Map(), seq=9), [at(9, ev.FlowPaused, reason="waiting")])
    assert decode(row.payload) == {"sessionId": "session-1", "seq": 9}


def test_a_failure_and_an_abort_are_told_and_a_good_end_is_not() -> None:
    """A bad end has a note in the thread that says by whom; a good one is on the card."""
    running = session(phase="running")
    failed = slack_intents(
        running, session(phase="ended", outcome="failed"), [at(6, ev.SessionEnd, status="failed")]
    )
    assert ("note", "end:session-1", THREAD["key"]) in kinds(failed)
    by = at(6, ev.SessionAborted, reason="wrong one", actor=BEN)
    aborted = slack_intents(running, session(phase="finalizing", outcome="aborted"), [by])
    assert decode(aborted[-1].payload) == {
        "sessionId": "session-1",
        "seq": 5,
        "by": BEN,
        "reason": "wrong one",
    }
    good = slack_intents(
        running, session(phase="ended", outcome="complete"), [at(6, ev.SessionEnd, status="complete")]
    )
    assert kinds(good) == [CARD]


def test_a_session_outside_of_slack_writes_nothing() -> None:
    """A session of the terminal has no thread, and nothing to show there."""
    assert slack_intents(session(thread=None), session(prompt(), thread=None), [ASKED]) == []


def test_rows_beside_a_session_carry_what_they_say() -> None:
    """Notes go into their thread's lane; what concerns one person has a lane of its own."""
    note = note_row("note:1", "T:C:1", "C", "1", "hi")
    assert (note.kind, note.lane, decode(note.payload)["threadTs"]) == ("note", "T:C:1", "1")
    assert ephemeral_row("e:1", "C", "U", "1", "no").lane == "e:1"
    assert decode(respond_row("r:1", "https://hooks.slack.com/x", "ok").payload)["text"] == "ok"
    then = {"kind": "slack.rooted", "key": "rooted:1", "payload": {"a": 1}}
    assert decode(root_row("root:1", "C", "hello", then).payload)["then"] == then
