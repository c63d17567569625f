"""What a message in a thread means: the table of cases is the specification."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_state.question_row import PromptState, TooLong
from prompt_state.routing import (
    Answer,
    Chatter,
    Control,
    Hint,
    Hold,
    Ignore,
    Listener,
    Menu,
    Message,
    Note,
    Overhear,
    Route,
    Say,
    SessionView,
    Steer,
    Thread,
    WhichAgent,
    control_word,
    newer,
    read_message,
    route,
)
from tests.prompt_state.prompt_cases import approval, ask

RUNNING = SessionView("session-1", "running", "running")
WAITING = SessionView("session-1", "paused", "waiting")
ENDED = SessionView("session-1", "complete", "ended")
HELD = SessionView("session-2", "paused", "held")
ALPHA, BETA = Listener("session-1", "look", "alpha"), Listener("session-1", "fix", "beta")
OTHERS = replace(ALPHA, steered=False)
HEARS = replace(OTHERS, overhears=True)
RESTS = replace(ALPHA, rests=True)
EARLIER, LATELY = replace(BETA, spoke="2026-01-01"), replace(ALPHA, spoke="2026-01-02")
STOP_GO = (
    {"value": "stop", "label": "Stop", "style": "danger"},
    {"value": "go", "label": "Go on", "style": None},
)


def said(text: str, ts: str = "1005.000000", **changed: Any) -> Message:
    """A reply in the thread, sent after everything that is shown at 1001."""
    values: dict[str, Any] = {"text": text, "user": "UANA", "ts": ts, "thread_ts": "1000.000000"}
    return Message(**(values | changed))


def addressed(text: str) -> Message:
    """A reply to the bot."""
    return said(text, mentions_bot=True)


def aside(text: str) -> Message:
    """A reply to a colleague."""
    return said(text, starts_with_mention_of_other=True)


def with_file(text: str) -> Message:
    """A reply with a file."""
    return said(text, subtype="file_share", has_files=True)


def once(kind: str, prompt_id: str) -> Hint:
    """A hint that is given once."""
    return Hint(kind, (prompt_id,), once=True)  # type: ignore[arg-type]  # one of its kinds


def overheard(text: str, **how: bool) -> Overhear:
    """The words are for an agent that listens."""
    return Overhear(("session-1",), text, **how)


def choice(**changed: Any) -> PromptState:
    """A question with two choices, stop and go."""
    return ask("p-c", options=STOP_GO, **changed)


def to_alpha(text: str) -> Steer:
    """The words go to the first agent."""
    return Steer("session-1", "look", text)


def thread(*prompts: PromptState, mine: str | None = None, **changed: Any) -> Thread:
    """A waiting thread. `mine`: the prompts that the author may answer, all by default."""
    may = {prompt.prompt_id for prompt in prompts} if mine is None else set(mine.split())
    values: dict[str, Any] = {"sessions": (WAITING,), "prompts": prompts, "may_answer": frozenset(may)}
    return Thread(**(values | changed))


class Case(NamedTuple):
    name: str
    thread: Thread
    message: Message
    route: Route


A, B = ask("p-a", number=1), ask("p-b", number=2)
FILES = ask("p-a", number=1, accepts_text=False, accepts_files=True)
LATER = ask("p-later", number=3, message_ts="1009.000000")
UNSHOWN = ask("p-unshown", number=4, status="requested", message_ts=None)
GATE = approval(number=5)
DONE = ask("p-done", number=6, status="answered")
WHO = ask("p-who", number=8, form={"fields": [{"name": "who", "type": "string", "format": "user"}]})
CHOICE = ask("p-choice", accepts_text=False, options=STOP_GO)
UNSHOWN_CHOICE = choice(status="requested", message_ts=None)
LATER_CHOICE = choice(accepts_text=False, message_ts="1009.0")
LIMIT = ask("p-limit", kind="limit", accepts_text=False, options=STOP_GO)
TYPED_GATE = approval(accepts_text=True)
INNER = ask("p-x", path="roll[2]/ok", node_id="ok")
TWICE = (ask("p-1", node_id="ok"), ask("p-2", node_id="ok"))
STOP = Control("stop", ("session-1",))

CASES = [
    # -- no message of a person for us
    Case("bots are not people", thread(A), said("yes", bot=True), Ignore("written by a bot")),
    Case("an edit answers nothing", thread(A), said("yes", edited=True), Note("edited")),
    Case("an edit's own event", thread(A), said("yes", subtype="message_changed"), Note("edited")),
    Case("a deletion takes nothing back", thread(A), said("", subtype="message_deleted"), Note("deleted")),
    Case("joining is nothing", thread(A), said("x", subtype="channel_join"), Ignore("subtype channel_join")),
    Case("also sent to the channel", thread(A), said("x", subtype="thread_broadcast"), Answer("p-a", "x")),
    Case("a file without words answers where files may", thread(FILES), with_file(""), Answer("p-a", "")),
    Case("a file without words is no answer to a question for words", thread(A), with_file(""), Chatter()),
    Case("words are no answer where files are", thread(FILES), said("one moment"), once("files", "p-a")),
    Case("words and files are one answer", thread(FILES), with_file("here"), Answer("p-a", "here")),
    Case("nothing at all", thread(A), said(" "), Ignore("empty")),
    Case("only a mention", thread(A), said("", mentions_bot=True), Say((WAITING,))),
    Case("not in a thread", thread(A), said("x", thread_ts=None), Ignore("no reply in a thread")),
    Case("the message that began it", thread(A), said("x", ts="1000.000000"), Ignore("no reply in a thread")),
    Case("a thread of others", Thread(sessions=()), said("x"), Ignore("no session in this thread")),
    Case("words to a colleague", thread(A), aside("<@UBEN> ok?"), Chatter()),
    Case("a mention where people are asked for", thread(WHO), aside("<@UBEN>"), Answer("p-who", "<@UBEN>")),
    Case("a mention where words are asked for", thread(A), aside("<@UBEN>"), Chatter()),
    # -- control words
    Case("a control word", thread(A), said("status"), Control("status", ("session-1",))),
    Case("in capitals, with a full stop", thread(A), said("STOP."), Control("stop", ("session-1",))),
    Case("cancel asks first", thread(A), said("cancel"), Control("cancel", ("session-1",), confirm=True)),
    Case("also from one who is not asked", thread(A, mine=""), said("help"), Control("help", ("session-1",))),
    Case("only as the whole message", thread(A), said("stop at noon"), Answer("p-a", "stop at noon")),
    Case("never over an offered choice", thread(CHOICE), said("stop"), Answer("p-choice", "stop")),
    Case("a choice may be typed", thread(CHOICE), said(" GO "), Answer("p-choice", " GO ")),
    Case("or its number in the list", thread(CHOICE), said("1"), Answer("p-choice", "1")),
    Case("but not with more words", thread(CHOICE), said("go on then"), once("buttons", "p-choice")),
    Case("nor by whoever is not asked", thread(CHOICE, mine=""), said("go"), once("not_yours", "p-choice")),
    Case("named, it may be typed too", thread(CHOICE, A), said("#p-choice: go"), Answer("p-choice", "go")),
    Case("either could be meant", thread(CHOICE, A), said("go"), Menu(("p-choice", "p-a"), "go")),
    Case("what is no choice goes to the text prompt", thread(CHOICE, A), said("done"), Answer("p-a", "done")),
    Case("an approval is never typed", thread(GATE), said("Approve"), once("buttons", "p-gate")),
    Case("another's choice stops no stop", thread(CHOICE, mine="", agents=(ALPHA,)), said("stop"), STOP),
    Case("nor does a button of an approval", thread(approval(options=STOP_GO)), said("stop"), STOP),
    Case("an offered word that may be typed", thread(choice()), said("Stop"), Answer("p-c", "Stop")),
    Case("a limit takes one of its choices in words", thread(LIMIT), said("stop"), Answer("p-limit", "stop")),
    Case("other words at a limit are no choice", thread(LIMIT), said("why?"), once("buttons", "p-limit")),
    Case("a choice that came later offers nothing", thread(LATER_CHOICE), said("stop"), STOP),
    Case("a choice that is being posted may offer", thread(UNSHOWN_CHOICE), said("stop"), Hold(("p-c",))),
    Case("a closed choice offers nothing", thread(choice(status="expired")), said("stop"), STOP),
    Case("help among colleagues, after the end", thread(sessions=(ENDED,)), said("help"), Chatter()),
    Case("help of the bot, after the end", thread(sessions=(ENDED,)), addressed("help"), Control("help", ())),
    # -- a reply that names a prompt
    Case("by number", thread(A, B), said("#2: looks good"), Answer("p-b", "looks good")),
    Case("by node", thread(A, B), said("#a : fine"), Answer("p-a", "fine")),
    Case("by id", thread(A, B), said("#p-b: x"), Answer("p-b", "x")),
    Case("by path", thread(INNER, A), said("#roll[2]/ok: x"), Answer("p-x", "x")),
    Case("a node that asks twice", thread(*TWICE), said("#ok: x"), Menu(("p-1", "p-2"), "x")),
    Case("several lines", thread(A, B), said("#1: one\ntwo: three"), Answer("p-a", "one\ntwo: three")),
    Case("a control word as an answer", thread(A), said("#1: stop"), Answer("p-a", "stop")),
    Case("one that is closed", thread(DONE, A), said("#6: x"), Hint("closed", ("p-done",))),
    Case("one for others", thread(A, B, mine="p-a"), said("#2: x"), Hint("not_yours", ("p-b",))),
    Case("an approval", thread(A, GATE), said("#5: approve"), Hint("buttons", ("p-gate",))),
    Case("one that came later", thread(A, LATER), said("#3: x"), Hint("older", ("p-later",))),
    Case("one being posted", thread(A, UNSHOWN), said("#4: x"), Hold(("p-unshown",))),
    Case("and nothing said", thread(A), said("#1:"), Hint("no_text", ("p-a",))),
    Case("a number of something else", thread(A), said("#77: is fixed"), Answer("p-a", "#77: is fixed")),
    Case("without a colon it is text", thread(A), said("#1 is fixed"), Answer("p-a", "#1 is fixed")),
    # -- the only open text prompt
    Case("the only one", thread(A), said("yes"), Answer("p-a", "yes")),
    Case("the only one beside an approval", thread(GATE, A), said("yes"), Answer("p-a", "yes")),
    Case("an input", thread(ask("p-in", kind="input")), said("api"), Answer("p-in", "api")),
    Case("the only one for this person", thread(A, B, mine="p-b"), said("yes"), Answer("p-b", "yes")),
    Case("several: ask which", thread(A, B), said("yes"), Menu(("p-a", "p-b"), "yes")),
    Case("the second came after the reply", thread(A, LATER), said("yes"), Answer("p-a", "yes")),
    Case("the second is being posted", thread(A, UNSHOWN), said("yes"), Hold(("p-unshown",))),
    Case("the only one is being posted", thread(UNSHOWN), said("yes"), Hold(("p-unshown",))),
    Case("somebody else's is being posted", thread(A, UNSHOWN, mine="p-a"), said("y"), Answer("p-a", "y")),
    Case("a reply older than the prompt", thread(LATER), said("yes"), Chatter()),
    Case("sent at the very moment", thread(A), said("yes", ts="1001.000000"), Chatter()),
    Case("an answered one", thread(DONE), said("yes"), Chatter()),
    Case("one who is not asked, once", thread(A, mine=""), said("I think yes"), once("not_yours", "p-a")),
    Case("one who was asked something else too", thread(A, B, mine="p-b"), said("y"), Answer("p-b", "y")),
    Case("one who speaks to a colleague", thread(A, mine=""), aside("<@UBEN> yes?"), Chatter()),
    Case("one who wrote before the question", thread(LATER, mine=""), said("yes"), Chatter()),
    Case("not asked, to the bot", thread(A, mine=""), addressed("yes"), Hint("not_yours", ("p-a",))),
    # -- agents, buttons, the rest
    Case("a prompt goes before an agent", thread(A, agents=(ALPHA,)), said("x"), Answer("p-a", "x")),
    Case("a running agent", thread(agents=(ALPHA,)), said("x"), to_alpha("x")),
    Case("an agent that waits", thread(GATE, agents=(ALPHA,)), said("x"), to_alpha("x")),
    Case("two agents: nobody said which", thread(agents=(ALPHA, BETA)), said("x"), WhichAgent((ALPHA, BETA))),
    Case("one of two by name", thread(agents=(ALPHA, BETA)), said("Alpha: hurry up"), to_alpha("hurry up")),
    Case("one that is there by name", thread(agents=(ALPHA,)), said("alpha: go"), to_alpha("go")),
    Case("over, by its name", thread(agents=(BETA,), by_name=(ALPHA,)), said("alpha: go"), to_alpha("go")),
    Case("the last one that is over by name", thread(by_name=(ALPHA,)), said("alpha: go"), to_alpha("go")),
    Case("one anew", thread(agents=(ALPHA,), by_name=(BETA, ALPHA)), said("alpha: go"), to_alpha("go")),
    Case("over, of who may not steer", thread(by_name=(OTHERS,)), said("alpha: go"), Chatter()),
    Case("over, not named", thread(agents=(ALPHA,), by_name=(BETA,)), said("go: beta"), to_alpha("go: beta")),
    Case("no name of an agent", thread(agents=(ALPHA,)), said("note: go"), to_alpha("note: go")),
    Case("the one that was spoken to last", thread(agents=(EARLIER, LATELY)), said("x"), to_alpha("x")),
    Case("a picture without words", thread(agents=(ALPHA,)), with_file(""), to_alpha("")),
    Case("only by mention", thread(agents=(replace(ALPHA, by_mention=True),)), said("x"), Chatter()),
    Case("by mention", thread(agents=(replace(ALPHA, by_mention=True),)), addressed("x"), to_alpha("x")),
    # -- colleagues
    Case("who may not steer", thread(agents=(OTHERS,)), said("x"), Chatter()),
    Case("who may not steer, to the bot", thread(agents=(OTHERS,)), addressed("x"), to_alpha("x")),
    Case("overheard", thread(agents=(HEARS,)), said("x"), Overhear(("session-1",), "x")),
    Case("overheard, to the bot", thread(agents=(HEARS,)), addressed("x"), overheard("x", addressed=True)),
    Case(
        "overheard, to a colleague",
        thread(agents=(replace(HEARS, steered=True),)),
        said("<@UBEN> x", starts_with_mention_of_other=True),
        Overhear(("session-1",), "<@UBEN> x", aside=True),
    ),
    # -- after the answer
    Case("done", thread(agents=(RESTS,)), said("done"), Control("done", ("session-1",))),
    Case("stop while it rests", thread(agents=(RESTS,)), said("stop"), Control("done", ("session-1",))),
    Case("done while it works", thread(agents=(ALPHA,)), said("done"), to_alpha("done")),
    Case("a reply while it rests", thread(agents=(RESTS,)), said("x"), to_alpha("x")),
    Case("text is no approval", thread(GATE), said("approve"), once("buttons", "p-gate")),
    Case("whatever an approval says it is", thread(TYPED_GATE), said("approve"), once("buttons", "p-gate")),
    Case("even by its name", thread(TYPED_GATE), said("#gate: approve"), Hint("buttons", ("p-gate",))),
    Case("one hint is enough", thread(GATE, hinted=frozenset({"p-gate"})), said("approve"), Chatter()),
    Case("to whoever is not asked", thread(GATE, mine=""), said("nice"), once("not_yours", "p-gate")),
    Case("no hint about later buttons", thread(approval(message_ts="1009.0")), said("nice"), Chatter()),
    Case("chat while it runs", thread(sessions=(RUNNING,)), said("lunch?"), Chatter()),
    Case("asked while it runs", thread(sessions=(RUNNING,)), addressed("well?"), Say((RUNNING,))),
    Case("asked when it is over", thread(sessions=(ENDED,)), said("well?", mentions_bot=True), Say((ENDED,))),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_message_means(case: Case) -> None:
    """A message in a thread means what its row of the table says."""
    assert route(case.message, case.thread) == case.route


def test_the_table_has_one_row_a_case() -> None:
    """No two rows of the table have one name, so none hides another."""
    assert len({case.name for case in CASES}) == len(CASES)


def test_a_held_reply_is_routed_when_the_prompt_is_shown() -> None:
    """A reply held for a prompt that is being posted answers it if it was sent after the post, else it does not."""
    reply = said("yes", ts="1005.000000")
    assert route(reply, thread(UNSHOWN)) == Hold(("p-unshown",))
    before = ask("p-unshown", message_ts="1004.999999")
    after = ask("p-unshown", message_ts="1005.000001")
    assert route(reply, thread(before)) == Answer("p-unshown", "yes")
    assert route(reply, thread(after)) == Chatter()


# --- properties --------------------------------------------------------------------------------------------

TS = st.sampled_from([None, "", "x", "999.5", "1001.000000", "1005.000000", "1005.000001", "1010.0", "١.٢"])
PROMPTS = st.builds(
    lambda index, kind, status, text, ts, options: ask(
        f"p-{index}",
        kind=kind,
        status=status,
        accepts_text=text,
        message_ts=None if status == "requested" else ts,
        number=index,
        options=options,
    ),
    st.integers(1, 4),
    st.sampled_from(["ask", "approval", "interrupted", "failed", "input"]),
    st.sampled_from(["requested", "shown", "answered", "expired", "cancelled"]),
    st.booleans(),
    TS,
    st.sampled_from([(), STOP_GO]),
)
IDS = st.sampled_from([f"p-{index}" for index in range(1, 5)])
THREADS = st.builds(
    Thread,
    sessions=st.lists(st.sampled_from([RUNNING, WAITING, ENDED]), max_size=2).map(tuple),
    prompts=st.lists(PROMPTS, max_size=4, unique_by=lambda prompt: prompt.prompt_id).map(tuple),
    may_answer=st.frozensets(IDS),
    agents=st.sampled_from([(), (ALPHA,), (ALPHA, BETA), (OTHERS,), (HEARS,), (RESTS,)]),
    by_name=st.sampled_from([(), (ALPHA,)]),
    hinted=st.frozensets(IDS),
)
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["approve", "Approve", "#1: approve", "#p-2: reject", "stop", "yes", "#3:", "status!"]),
)
MESSAGES = st.builds(
    Message,
    text=TEXTS,
    user=st.just("UANA"),
    ts=st.sampled_from(["1005.000000", "999.000000", "x", ""]),
    thread_ts=st.sampled_from([None, "1000.000000"]),
    edited=st.booleans(),
    subtype=st.sampled_from([None, "file_share", "message_changed", "bot_message"]),
    bot=st.booleans(),
    mentions_bot=st.booleans(),
    starts_with_mention_of_other=st.booleans(),
    has_files=st.booleans(),
)


@given(message=MESSAGES, thread=THREADS)
def test_free_text_answers_only_what_it_may(message: Message, thread: Thread) -> None:
    """A text answers only an open text prompt older than itself that its author may answer, never an approval."""
    found = route(message, thread)
    ids: tuple[str, ...] = ()
    if isinstance(found, Answer):
        ids = (found.prompt_id,)
    elif isinstance(found, Menu):
        ids = found.prompt_ids
        assert len(ids) > 1
    for prompt in thread.prompts:
        if prompt.prompt_id in ids:
            assert prompt.kind in ("ask", "input")
            assert prompt.status == "shown"
            assert prompt.prompt_id in thread.may_answer
            assert newer(message.ts, prompt.message_ts)
            assert not message.bot
            assert not message.edited


@given(message=MESSAGES, thread=THREADS)
def test_a_message_is_held_only_for_prompts_that_are_being_posted(message: Message, thread: Thread) -> None:
    """Whatever holds a message is a prompt without a ts, so showing or closing it always releases the message."""
    found = route(message, thread)
    if isinstance(found, Hold):
        held = [prompt for prompt in thread.prompts if prompt.prompt_id in found.prompt_ids]
        assert held
        assert {prompt.status for prompt in held} == {"requested"}


# --- reading what Slack sends --------------------------------------------------------------------------------


def read(raw: str, **changed: Any) -> Message:
    values: dict[str, Any] = {"bot_user_id": "UBOT", "user": "UANA", "ts": "1005.0", "thread_ts": "1000.0"}
    return read_message(raw, **(values | changed))


@pytest.mark.parametrize(
    ("raw", "text", "mentions", "other"),
    [
        ("looks good", "looks good", False, False),
        ("<@UBOT> stop", "stop", True, False),
        ("  <@UBOT|sayso>: stop", "stop", True, False),
        ("<@UBOT>, <@UBOT> stop", "stop", True, False),
        ("stop <@UBOT>", "stop", True, False),
        ("stop <@UBOT> <@UBOT|sayso> ", "stop", True, False),
        ("<@UBOT>", "", True, False),
        ("ask <@UBOT> later", "ask <@UBOT> later", True, False),
        ("<@UBEN> can you?", "<@UBEN> can you?", False, True),
        ("<@UBEN> and <@UBOT>", "<@UBEN> and", True, True),
        ("<@UBOT> <@UBEN> can you?", "<@UBEN> can you?", True, False),
        ("<!subteam^S1|@sre> look", "@sre look", False, True),
        ("<!here> look", "@here look", False, True),
        ("&lt;@UBEN&gt; is typed", "<@UBEN> is typed", False, False),
        ("&lt;@UBOT&gt;", "<@UBOT>", False, False),
        ("<@UBOT2> hi", "<@UBOT2> hi", False, True),
    ],
)
def test_mentions_are_read_from_what_slack_sends(raw: str, text: str, mentions: bool, other: bool) -> None:
    """The bot's mentions leave the ends of a text; whom it begins with is told by Slack's markup, not by words."""
    message = read(raw)
    assert (message.text, message.mentions_bot, message.starts_with_mention_of_other) == (
        text,
        mentions,
        other,
    )


def test_a_direct_message_addresses_the_bot() -> None:
    """In a direct message no mention is needed to be talking to the bot."""
    assert read("well?", direct=True).mentions_bot


def test_a_message_that_is_too_long_is_refused_with_its_size() -> None:
    """A text above 16 KiB is not cut but refused, and the sentence says how long it is and may be."""
    with pytest.raises(TooLong, match=r"16,385 bytes; the limit is 16,384"):
        read("x" * 16_385)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("stop", "stop"),
        (" Pause! ", "pause"),
        ("status?", "status"),
        ("help...", "help"),
        ("RESUME", "resume"),
        ("cancel…", "cancel"),
        ("`stop`", "stop"),
        ("*Stop*!", "stop"),
        ("“resume”", "resume"),
        ("stop :octagonal_sign:", "stop"),
        ("\U0001f6d1 stop\ufe0f", "stop"),
        ("stop\u200b", "stop"),
        ("ｓｔｏｐ", "stop"),
        ("stop it", None),
        ("/stop", None),
        ("#stop", None),
        ("1. stop", None),
        (":stop:", None),
        ("", None),
        ("...", None),
        ("stopp", None),
        ("st op", None),
    ],
)
def test_a_control_word_is_the_whole_text(text: str, word: str | None) -> None:
    """A control word counts in any case, whatever marks, emoji and unseen characters stand around it, and only alone."""
    assert control_word(text) == word


@pytest.mark.parametrize(
    ("ts", "than", "expected"),
    [
        ("1001.000001", "1001.000000", True),
        ("1001.000000", "1001.000000", False),
        ("1001.1", "1001.100000", False),
        ("1001.2", "1001.100000", True),
        ("999.9", "1000.0", False),
        (None, "1000.0", False),
        ("1000.0", None, False),
        ("soon", "1000.0", False),
        ("1000.0", "1000", False),
    ],
)
def test_times_of_slack_compare_as_numbers(ts: str | None, than: str | None, expected: bool) -> None:
    """A ts is later by its number, not by its text; what is not a ts is never later."""
    assert newer(ts, than) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resume", Control("resume", ("session-2",))),
        ("resume the disk is replaced", Control("resume", ("session-2",), text="the disk is replaced")),
        ("Resume: go\non", Control("resume", ("session-2",), text="go\non")),
        ("resumed", Answer("p-confirm", "resumed")),
        ("please resume", Answer("p-confirm", "please resume")),
    ],
)
def test_resume_may_have_a_message_behind_it_while_something_is_held(text: str, expected: Route) -> None:
    """Behind `resume` stands what the session is told; other words answer what is open, also while it is held."""
    found = route(said(text), thread(ask("p-confirm", session_id="session-2"), sessions=(HELD,)))
    assert found == expected


def test_resume_with_words_behind_it_is_an_answer_where_nothing_is_held() -> None:
    """A sentence that begins with `resume` answers the open question of a session that is not paused by anybody."""
    assert route(said("resume tomorrow"), thread(ask())) == Answer(ask().prompt_id, "resume tomorrow")


def test_only_what_is_held_is_resumed() -> None:
    """With several sessions in a thread, the message behind `resume` goes to those that are held."""
    found = route(said("resume now"), thread(sessions=(WAITING, HELD)))
    assert found == Control("resume", ("session-2",), text="now")
