"""The meaning of what people say, edit and press: a payload and a situation in, a value out."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bot.inbound.decisions import EDITED, MESSAGE, Home
from bot.inbound.lines import BadLine, StartLine
from bot.inbound.meaning import (
    COPY,
    GONE,
    NOT_THE_AUTHOR,
    UNWRITTEN,
    ApproveAll,
    Choose,
    Edited,
    EndRun,
    Explain,
    Inform,
    KeepRun,
    Meaning,
    MeantFor,
    Memory,
    Missed,
    Needs,
    Pressed,
    Rate,
    RevokeGrant,
    Said,
    TakeBack,
    WrittenBefore,
    still_counts,
    understand,
)
from bot.inbound.triggers import Listening
from bot.rendering import phrases
from bot.rendering.agents import RATE
from bot.rendering.calls import ALL
from bot.rendering.card import CANCEL
from bot.rendering.grants import REVOKE
from bot.rendering.notes import AGENTS, MENU
from engine.journal.records import Head, InboxItem, InboxRow
from engine.language.codec import encode
from prompt_state.routing import Chatter, Hold, Ignore, SessionView, Thread
from tests.prompt_state.prompt_cases import approval
from tests.support.engine import START, flow_of

HOME = Home("T1", "A1", "UBOT")
FLOW = flow_of("""flow: deploy
inputs: {service: {type: string, default: web}}
triggers: [{mention: "ship {service}"}]
nodes: [{id: a, type: shell, with: {script: ls}}]
""")
FLOWS = Said(HOME, (), Listening(lambda: {"deploy": FLOW}))
HEAD = Head(
    "session-1", "deploy", "d1", None, "T1:C1:1.0", "paused", "waiting", 1, 9, None, START, START, None, None
)


def message(text: str, *, direct: bool = False, thread: str | None = None, **more: Any) -> dict[str, Any]:
    """A stored message."""
    return {
        "team": "T1",
        "channel": "D1" if direct else "C1",
        "text": text,
        "user": "U1",
        "ts": "5.0",
        "threadTs": thread,
        "edited": False,
        "subtype": None,
        "app": False,
        "direct": direct,
        "hasFiles": False,
        **more,
    }


def call(text: str, **more: Any) -> dict[str, Any]:
    """A message that begins with a mention of the bot."""
    return message(f"<@UBOT> {text}", **more)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", Inform("help")),
        ("Help!", Inform("help")),
        ("status", Inform("running")),
        ("Flows", Inform("flows")),
        ("grants", Inform("grants")),
        ("grants revoke prompt-1a", RevokeGrant("prompt-1a")),
        ("memory", Memory(None)),
        ("memory forget N0123456789", Memory("n0123456789")),
        ("memory edit n0123456789 the disk is small", Memory("n0123456789", "the disk is small")),
        ("deploy service=db", StartLine("deploy", {"service": "db"})),
        ("run deploy", StartLine("deploy", {})),
        ("ship db", StartLine("deploy", {"service": "db"})),
    ],
)
def test_a_call_of_the_bot_is_a_wish_of_its_own(text: str, meaning: object) -> None:
    """Outside of a thread in which something goes on."""
    assert understand(call(text), FLOWS) == meaning
    assert understand(message(text, direct=True), replace(FLOWS, elsewhere=())) == meaning


def test_a_line_that_starts_nothing_is_answered() -> None:
    """It names no flow, or names none that is served."""
    assert isinstance(understand(call("deplyo"), FLOWS), BadLine)


def test_nothing_is_asked_for_that_does_not_matter() -> None:
    """The flows where the bot is called, other threads where somebody answers outside of them, else the thread alone."""
    bare = Said(HOME, (HEAD,))
    assert understand(message("it is full", thread="1.0"), bare) == Needs("thread")
    assert understand(call("it is full", thread="1.0"), bare) == Needs("listening")
    assert understand(message("it is full", direct=True), FLOWS) == Needs("elsewhere")
    too_long = understand(message("x" * 20_000, thread="1.0"), bare)
    assert isinstance(too_long, Explain)
    assert too_long.outcome == "too_long"


def test_an_answer_beside_its_thread_is_meant_for_the_only_one() -> None:
    """With several nobody can tell, and with none it is a line that starts something."""
    said = message("it is full", direct=True)
    assert understand(said, replace(FLOWS, elsewhere=("T1:D1:1.0",))) == MeantFor("T1:D1:1.0")
    several = understand(said, replace(FLOWS, elsewhere=("T1:D1:1.0", "T1:D1:2.0")))
    assert isinstance(several, Explain)
    assert several.outcome == "told"
    assert isinstance(understand(said, replace(FLOWS, elsewhere=())), BadLine)


def test_in_a_thread_only_words_about_flows_are_wishes() -> None:
    """What else is said to the bot there is for the session; in that of a direct message, a mention says that it is a call."""
    here = replace(FLOWS, sessions=(HEAD,), thread=Thread((SessionView("session-1", "paused"),)))
    assert understand(call("deploy", thread="1.0"), here) == StartLine("deploy", {})
    assert understand(call("memory", thread="1.0"), here) == Memory(None)
    assert not isinstance(understand(call("it is full", thread="1.0"), here), BadLine)
    assert understand(message("deploy", thread="1.0"), here) == Chatter()
    direct = message("deploy", direct=True, thread="1.0")
    assert not isinstance(understand(direct, here), StartLine)


def row(outcome: str | None, **data: Any) -> InboxRow:
    """What was stored of a message that is edited now."""
    payload = encode({**message("old"), **data})
    return InboxRow(1, "message:T1:C1:5.0", MESSAGE, payload, None, None, START, outcome, None)


@pytest.mark.parametrize(
    ("before", "meaning"),
    [
        (None, "Edits are not read. Please send it as a new message."),
        (row(None), Hold(())),
        (row("applied"), "Your edit was ignored: the original message counts."),
        (row("ignored"), Ignore("an edit of an unused message")),
        (row("applied", text="new"), Ignore("read with these words")),
        (row("applied", editedTs="9.0"), Ignore("read with these words")),
        (row("applied", edited=True), "Edits are not read. Please send it as a new message."),
    ],
)
def test_an_edit_changes_nothing_and_its_author_may_hear_so(before: InboxRow | None, meaning: object) -> None:
    """By what became of the message before; what was read with these very words was not edited for anybody here."""
    edit = {"ts": "5.0", "text": "new", "editedTs": "8.0"}
    wanted = Explain(meaning, "told") if isinstance(meaning, str) else meaning
    assert understand(edit, Edited(before)) == wanted


GATE = approval()
OVER = approval(status="expired")
WRITTEN = "message:T1:C1:5.0"
HERE = {
    Needs("prompt", "p-gate"): GATE,
    Needs("session", "session-1"): HEAD,
    Needs("written", WRITTEN): row(None, text="it is full"),
}


def press(action: str, value: str, found: dict[Needs, Any] | None = None, **more: Any) -> Meaning:
    """The meaning of a press by U1, with all in the thread that it may name."""
    data = {"team": "T1", "channel": "C1", "user": "U1", "messageTs": "1001.000000", "picked": None}
    data |= {"actionId": action, "value": value, **more}
    return understand(data, Pressed(HOME, HERE if found is None else found))


@pytest.mark.parametrize(
    ("action", "value", "meaning"),
    [
        ("sayso:option:1", "p-gate|n1|1", Choose(GATE, "n1", "reject")),
        ("sayso:option:0", "p-gate|n0|0", Choose(GATE, "n0", "approve")),
        ("sayso:option:2", "p-gate|n1|2", Explain(GONE)),
        ("sayso:option:1", "p-gate|n1|0", Explain(GONE)),
        (CANCEL, "session-1", EndRun(HEAD, False)),
        (phrases.CANCEL_THIS, "session-1", EndRun(HEAD, True)),
        (phrases.KEEP, "session-1", KeepRun(HEAD)),
        (REVOKE, "p-gate|n1", TakeBack("p-gate", GATE)),
        (REVOKE, "p-gate|n0", Explain(COPY)),
        (RATE, "good|said:session-1:9", Rate("good", "said:session-1:9")),
        (ALL, "p-gate n1", ApproveAll([GATE])),
        (ALL, "p-gate n0", Explain(COPY)),
        (f"{MENU}0", "p-gate|n1|5.0|U1", WrittenBefore(GATE, "n1", "5.0", "it is full", [])),
        (f"{AGENTS}0", "session-1|help|5.0|U1", WrittenBefore(HEAD, "help", "5.0", "it is full", [])),
        (f"{AGENTS}0", "session-1|help|5.0|U2", Explain(NOT_THE_AUTHOR)),
        ("sayso:unknown", "p-gate", Explain(GONE)),
    ],
)
def test_a_press_means_what_its_button_carries(action: str, value: str, meaning: object) -> None:
    """An action, and a value that belongs to it; anything else is a button that is not known."""
    assert press(action, value) == meaning


def test_a_press_asks_for_what_it_names_one_by_one() -> None:
    """The question first, then what was written; what is not in the thread is not known."""
    menu, value = f"{MENU}0", "p-gate|n1|5.0|U1"
    assert press(menu, value, {}) == Needs("prompt", "p-gate")
    assert press(menu, value, {Needs("prompt", "p-gate"): GATE}) == Needs("written", WRITTEN)
    assert press(menu, value, {**HERE, Needs("written", WRITTEN): None}) == Explain(UNWRITTEN)
    assert press(menu, value, {**HERE, Needs("written", WRITTEN): row(None, user="U2")}) == Explain(UNWRITTEN)
    assert press(menu, value, {Needs("prompt", "p-gate"): None}) == Explain(GONE)
    assert press(phrases.KEEP, "session-1", {}) == Needs("session", "session-1")
    assert press(phrases.KEEP, "session-1", {Needs("session", "session-1"): None}) == Explain(GONE)


def test_a_press_counts_in_the_message_that_shows_the_question() -> None:
    """Or in a copy outside of the thread. What is closed says how it was closed."""
    assert press("sayso:option:0", "p-gate|n1|0", messageTs="7.0") == Explain(COPY)
    away = press("sayso:option:0", "p-gate|n1|0|C1|1.0", messageTs="7.0", **{"from": "home"})
    assert away == Choose(GATE, "n1", "approve")
    assert press("sayso:option:0", "p-gate|n1|0", stale=True) == Explain(GONE)
    closed = {Needs("prompt", "p-gate"): OVER}
    for action in ("sayso:option:0", "sayso:unknown"):
        assert press(action, "p-gate|n1|0", closed) == Explain(phrases.closed_text(OVER))


ITEM = InboxItem("message:T1:C1:5.0", MESSAGE, encode({"text": "new", "editedTs": "8.0"}))
EDIT = InboxItem("edited:T1:C1:5.0", EDITED, encode({"text": "new", "editedTs": "8.0"}))


@pytest.mark.parametrize(
    ("edit", "new", "heard", "told", "counts"),
    [
        (None, True, None, None, ITEM),
        (EDIT, True, None, None, ITEM),
        (EDIT, True, None, row("told"), EDIT),
        (EDIT, True, None, row(None), ITEM),
        (EDIT, False, None, None, None),
        (EDIT, True, row("applied"), None, EDIT),
        (EDIT, False, row("applied"), None, EDIT),
        (EDIT, True, row("applied", editedTs="9.0"), None, None),
    ],
)
def test_of_a_message_that_was_edited_before_it_was_read_one_thing_counts(
    edit: InboxItem | None, new: bool, heard: InboxRow | None, told: InboxRow | None, counts: InboxItem | None
) -> None:
    """Its words as they are now, if nobody heard the first ones; else the edit, unless the words were read after it."""
    assert still_counts(Missed(ITEM, edit, new), heard, told) == counts
