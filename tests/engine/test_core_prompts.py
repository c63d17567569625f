"""Prompts: what counts as an answer, who may give it, and what comes too late."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from engine.decide.commands import Answer, Message, Shown, Steer
from engine.decide.question import MAX_TEXT
from engine.language.actors import Actor
from engine.language.errors import (
    AlreadyAnswered,
    EmptyMessage,
    InvalidAnswer,
    NotAllowed,
    PromptClosed,
    PromptTimedOut,
    SessionEnded,
    SeveralPrompts,
)
from tests.support.engine import ANA, BEN, Scenario, flow_of, given

ASK = "nodes: [{id: q, type: ask, with: {message: How?}}, {id: b, type: set, with: {said: '{{ nodes.q.text }}'}}]"
CHOOSE = "nodes: [{id: q, type: ask, with: {message: Which?, choices: [{value: eu, label: Europe}, us]}}]"
APPROVE = (
    "nodes: [{id: gate, type: approval, with: {message: Go?, approvers: [channel], exclude_requester: true}}]"
)
LAST_WAIT = ("prompt:answered", "flow:resumed", "node:completed", "flow:completed", "session:end")


def test_an_ask_waits_for_a_person() -> None:
    """The node starts, its prompt is requested, the flow pauses; nothing is due while it waits."""
    case = given(ASK).started()
    case.then("session:start", "flow:started", "node:started", "prompt:requested", "flow:paused")
    assert (case.state.status, case.state.phase) == ("paused", "waiting")
    assert case.event("flow:paused").node_id == "q"
    assert case.state.paused_at == case.now


def test_an_answer_completes_the_node_and_the_flow_goes_on() -> None:
    """The reply is the node's output and the next node sees it."""
    case = given(ASK).started()
    case.when(case.answer(text="fine", actor=BEN, key="m1"))
    assert case.event("prompt:answered").key == "m1"
    assert case.event("flow:resumed").message == "fine"
    assert case.node("q").output == {
        "text": "fine",
        "value": None,
        "values": {},
        "files": [],
        "by": {"id": BEN.id, "name": "ben", "email": None},
        "at": case.now,
    }
    assert case.node("b").output == {"said": "fine"}
    assert case.state.paused_at is None


WHO = """
flow: who
nodes:
  - {id: q, type: ask, with: {message: "Well?"}}
  - id: b
    type: set
    with:
      asked: "{{ session.requester.name }} <{{ session.requester.email }}>"
      answered: "{{ nodes.q.by.email }}"
      said: "{{ messages | map(attribute='by') }}"
"""


def test_people_have_their_names_and_addresses_in_expressions() -> None:
    """Requester, whoever answered and whoever said something have `name` and `email`, null where nobody knows them."""
    case = Scenario(flow_of(WHO)).started(replace(ANA, email="ana@example.com"))
    case.when(Steer("by the way", Actor.local("ops"), "m1"))
    case.when(case.answer(text="fine", actor=replace(BEN, name=None, email="ben@example.com")))
    assert case.node("b").output == {
        "asked": "ana <ana@example.com>",
        "answered": "ben@example.com",
        "said": [{"id": "local:ops", "name": "ops", "email": None}],
    }
    assert case.node("q").output["by"] == {"id": BEN.id, "name": None, "email": "ben@example.com"}


def test_the_requester_of_an_older_session_has_no_address() -> None:
    """A journal that has no e-mail gives null, not an error."""
    case = Scenario(flow_of(WHO)).started(Actor("U0OLD"))
    case.when(case.answer(text="fine"))
    assert case.node("b").output["asked"] == "null <null>"


def test_a_choice_gives_its_value_and_its_label() -> None:
    """With choices the answer is one of their values; the text is the label that people read."""
    case = given(CHOOSE).started()
    assert not case.prompt.accepts_text
    case.when(case.answer("eu")).then(*LAST_WAIT)
    assert (case.node("q").output["value"], case.node("q").output["text"]) == ("eu", "Europe")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"value": "eu"}, ("eu", "Europe")),
        ({"text": " europe "}, ("eu", "Europe")),
        ({"text": "2"}, ("us", "us")),
        ({"text": "neither, it is the cache"}, (None, "neither, it is the cache")),
    ],
)
def test_own_words_are_an_answer_beside_choices(
    said: dict[str, Any], expected: tuple[str | None, str]
) -> None:
    """What is a choice is that choice, pressed or typed; anything else is a text and no value."""
    case = given(CHOOSE.replace("message: Which?", "message: Which?, own_words: true")).started()
    assert case.prompt.accepts_text
    case.when(case.answer(**said)).then(*LAST_WAIT)
    assert (case.node("q").output["value"], case.node("q").output["text"]) == expected


def test_a_value_that_is_no_choice_is_never_own_words() -> None:
    """A press carries a value; one that is not offered answers nothing, and neither does an empty text."""
    case = given(CHOOSE.replace("message: Which?", "message: Which?, own_words: true")).started()
    assert "takes one of" in case.refused(case.answer("asia"), InvalidAnswer)
    assert "empty" in case.refused(case.answer(text="  "), InvalidAnswer)


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_an_approval_is_decided_by_its_buttons(decision: str) -> None:
    """The output says how it was decided and by whom."""
    case = given(APPROVE).started()
    case.when(case.answer(decision, actor=BEN))
    told = case.node("gate").output if decision == "approve" else case.node("gate").error
    assert (told["by"], told["reason"]) == ([{"id": BEN.id, "name": "ben", "email": None}], None)
    assert told.get("decision", told.get("type")) == {"approve": "approve", "reject": "rejected"}[decision]


@pytest.mark.parametrize(("style", "reject"), [("primary", "danger"), ("danger", None)])
def test_only_one_button_of_an_approval_is_red(style: str, reject: str | None) -> None:
    """Approving is green and rejecting red; where approving is what destroys, it is red and rejecting is plain."""
    case = given(APPROVE.replace("message: Go?", f"message: Go?, style: {style}")).started()
    assert [option["style"] for option in case.prompt.options] == [style, reject]


@pytest.mark.parametrize("text", ["approve", "yes", "Approve", "👍"])
def test_text_never_approves(text: str) -> None:
    """Free text is not a decision, neither as an answer to the prompt nor as a message."""
    case = given(APPROVE).started()
    case.refused(case.answer(text=text), InvalidAnswer)
    case.when(case.message(text)).then("session:message")
    assert case.prompt.kind == "approval"


@pytest.mark.parametrize("value", ["Europe", "EU", "", None, 1, True, ["eu"], {"value": "eu"}])
def test_what_was_not_offered_is_no_choice(value: object) -> None:
    """Only an offered value is an answer; the refusal names the labels."""
    case = given(CHOOSE).started()
    assert "Europe, us" in case.refused(case.answer(value), InvalidAnswer)


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\u00a0"])
def test_an_empty_reply_is_no_answer(text: str) -> None:
    """White space says nothing: the prompt stays open."""
    case = given(ASK).started()
    assert "empty" in case.refused(case.answer(text=text), InvalidAnswer)
    case.refused(case.message(text), EmptyMessage)


def test_a_value_is_no_text() -> None:
    """A free-text prompt takes text, not a value."""
    case = given(ASK).started()
    case.refused(case.answer("fine"), InvalidAnswer)


@pytest.mark.parametrize(
    ("text", "fits"),
    [("a" * MAX_TEXT, True), ("a" * (MAX_TEXT + 1), False), ("é" * (MAX_TEXT // 2 + 1), False)],
)
def test_a_reply_has_at_most_16_kib(text: str, fits: bool) -> None:
    """Length is counted in bytes of UTF-8; what is longer is refused as a whole, with both numbers."""
    case = given(ASK).started()
    if fits:
        assert case.when(case.answer(text=text)).state.status == "complete"
    else:
        assert "16,384" in case.refused(case.answer(text=text), InvalidAnswer)
        assert "16,384" in case.refused(case.message(text), InvalidAnswer)


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b", "e\u0301"])
def test_text_is_cleaned_where_it_enters(text: str) -> None:
    """NUL and lone surrogates become U+FFFD, the rest is NFC: in answers and in kept messages."""
    clean = {"a\x00b": "a\ufffdb", "a\ud800b": "a\ufffdb", "e\u0301": "é"}[text]
    case = given(ASK).started()
    assert case.when(case.answer(text=text)).node("q").output["text"] == clean
    case = given(APPROVE).started().when(Message(text, ANA, "k"))
    assert case.state.messages[0]["text"] == clean


def test_a_second_answer_is_told_who_was_first_and_when() -> None:
    """Only the first answer counts; whoever comes second hears who it was, when, and what they said."""
    case = given(CHOOSE + "\n").started()
    second = case.answer("us", actor=BEN)
    case.when(case.answer("eu"))
    text = case.refused(second, AlreadyAnswered)
    assert "ana" in text
    assert "2026-11-21 09:00 UTC" in text
    assert "Europe" in text


def test_the_same_key_counts_once() -> None:
    """An answer or message that was already used yields nothing and is not an error."""
    case = given(ASK.replace("{id: b", "{id: r, type: ask, with: {message: And?}}, {id: b")).started()
    answer = case.answer(text="one", key="k1")
    case.when(answer)
    case.when(answer).then()
    case.when(Answer(case.prompt.prompt_id, ANA, "k1", text="two")).then()
    case.when(Message("three", ANA, "k1")).then()
    assert case.prompt.path == "r"


def test_a_prompt_that_is_not_known_is_refused() -> None:
    """An answer to a prompt of nobody changes nothing."""
    case = given(ASK).started()
    case.refused(Answer("prompt-unknown", ANA, "k", text="x"), PromptClosed)


def test_a_prompt_that_expired_is_refused() -> None:
    """After the deadline the answer comes too late, and says so."""
    case = given(ASK + "\nlimits: {deadline: 1h}").started()
    late = case.answer(text="late")
    case.when(case.shown()).later(3600).when(case.timer_due())
    assert "This timed out at 2026-11-21 10:00 UTC" in case.refused(late, PromptTimedOut)


def test_a_prompt_of_an_aborted_session_is_refused() -> None:
    """A withdrawn prompt takes no answer."""
    case = given(ASK).started()
    late = case.answer(text="late")
    case.when(case.abort())
    assert "withdrawn" in case.refused(late, PromptClosed)


def test_only_the_buttons_of_this_copy_count() -> None:
    """The nonce of another copy is refused; the prompt's own nonce, or none, is accepted."""
    case = given(CHOOSE).started()
    case.refused(case.answer("eu", nonce="old"), PromptClosed)
    case.refused(case.answer("eu", nonce=""), PromptClosed)
    assert case.when(case.answer("eu", nonce=case.prompt.nonce)).state.status == "complete"


@pytest.mark.parametrize(("flow", "action"), [(CHOOSE, "answer"), (APPROVE, "decide")])
def test_the_policy_is_asked_with_the_prompt(flow: str, action: str) -> None:
    """Who may not answer gets the policy's sentence, and the prompt stays open."""
    case = given(flow).allowing(ANA).started()
    value = case.prompt.options[0]["value"]
    assert case.refused(case.answer(value, actor=BEN), NotAllowed) == f"ben may not {action}"
    assert case.when(case.answer(value)).state.status == "complete"


def test_who_may_not_answer_learns_nothing_from_a_wrong_answer() -> None:
    """The right to answer is checked before the answer is."""
    case = given(CHOOSE).allowing(ANA).started()
    case.refused(case.answer("nonsense", actor=BEN), NotAllowed)


def test_a_value_with_braces_stays_text() -> None:
    """A reply is data: nothing in it is evaluated, and `[1, 2]` stays text."""
    for text in ("{{ 1 + 1 }}", "[1, 2]", "{% raw %}"):
        case = given(ASK).started()
        assert case.when(case.answer(text=text)).node("b").output == {"said": text}


# --- messages ----------------------------------------------------------------------------------------------


def test_a_message_answers_the_only_text_prompt() -> None:
    """With one open text prompt that this person may answer, a message is its answer."""
    case = given(ASK).started()
    case.when(case.message("fine", key="m7"))
    assert case.event("prompt:answered").key == "m7"
    assert case.node("b").output == {"said": "fine"}


def test_a_message_that_nothing_takes_is_kept() -> None:
    """Without a text prompt the message is kept, once for each key, and the session continues waiting."""
    case = given(APPROVE).started()
    case.when(
        case.message("hello", key="m1"), case.message("hello", key="m1"), case.message("there", key="m2")
    )
    case.then("session:message", "session:message")
    assert [message["text"] for message in case.state.messages] == ["hello", "there"]
    assert case.state.phase == "waiting"


def test_a_message_while_a_node_runs_is_kept() -> None:
    """A message to a running session is kept for expressions."""
    case = given("nodes: [{id: a, type: shell, with: {run: [ls]}}]").started()
    case.when(case.message("hello")).then("session:message")


def test_a_message_of_somebody_who_may_neither_answer_nor_steer_is_refused() -> None:
    """The policy is asked for `steer` when the person may answer nothing."""
    case = given(ASK).allowing(ANA).started()
    assert case.refused(case.message("x", actor=BEN), NotAllowed) == "ben may not steer"


def two_open_prompts() -> Scenario:
    """A session with two open text prompts, of branches that run side by side."""
    return given(
        """
nodes:
  - id: both
    type: parallel
    branches:
      l: [{id: q, type: ask, with: {message: "How?"}}]
      r: [{id: other, type: ask, with: {message: "And the other?"}}]
"""
    ).started()


def test_several_text_prompts_are_never_guessed_between() -> None:
    """A message that two prompts could take is refused and both are named."""
    case = two_open_prompts()
    text = case.refused(Message("which?", ANA, "k"), SeveralPrompts)
    assert "How?" in text
    assert "And the other?" in text


def test_of_several_text_prompts_the_one_that_this_person_may_answer_takes_the_message() -> None:
    """Prompts that are for others do not count."""
    case = two_open_prompts()
    case.policy = lambda actor, action, state, prompt: (
        None if prompt is not None and prompt.path == "both[r]/other" else "not you"
    )
    case.only(Message("mine", ANA, "k"))
    assert case.event("prompt:answered").path == "both[r]/other"


@pytest.mark.parametrize("text", ["hello", "stop"])
def test_an_ended_session_takes_no_message(text: str) -> None:
    """A message to a session that has ended is refused and says how it ended."""
    case = given("nodes: [{id: a, type: noop}]").started()
    assert "complete" in case.refused(case.message(text), SessionEnded)


# --- shown -------------------------------------------------------------------------------------------------


def test_without_a_timeout_the_flow_has_a_deadline() -> None:
    """A prompt without `timeout` waits as long as the flow says, 30 days where it says nothing."""
    case = given(ASK).started()
    case.when(case.shown())
    assert case.event("timer:set").due_at == "2026-12-21T09:00:00.000Z"


def test_a_prompt_that_is_closed_is_not_shown() -> None:
    """News that a closed or unknown prompt was shown changes nothing."""
    case = given(ASK).started()
    late = case.shown()
    case.when(case.answer(text="x"))
    case.when(late, Shown("prompt-unknown", {})).then()
