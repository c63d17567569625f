"""Interruptions: crashes, cuts, timeouts, lost connections; what runs again and what is asked."""

from __future__ import annotations

from typing import Literal

import pytest

from engine.decide.commands import Begin, NodeBroke, NodeCut, NodeDone
from engine.language.errors import InvalidAnswer, NotAllowed
from tests.support.engine import ANA, BEN, Scenario, given

OUTPUT = {"stdout": "x", "stderr": "", "exit_code": 0, "seconds": 0.1}


def running(policy: str = "", kind: str = "shell", word: str = "one") -> Scenario:
    """A session whose node `a` is being worked on."""
    with_ = {
        "shell": "{run: [echo, '{{ inputs.word }}']}",
        "http": "{url: 'http://example.com'}",
        "post": "{url: 'http://example.com', method: POST}",
    }[kind]
    node = f"{{id: a, type: {'http' if kind == 'post' else kind}, {policy} with: {with_}}}"
    flow = f"inputs: {{word: {{type: string, default: one}}}}\nnodes: [{node}, {{id: b, type: noop}}]"
    return given(flow).started(word=word)


def test_a_crash_interrupts_what_was_started_before() -> None:
    """The next claim records starts of earlier epochs as interrupted before any work."""
    case = running("on_crash: again,").claimed()
    case.then("node:interrupted", "node:started")
    assert case.event("node:interrupted").reason == "crash"
    assert (case.node("a").epoch, case.node("a").attempt, case.node("a").crashes) == (2, 2, 1)


def test_a_node_that_runs_again_gets_the_input_that_was_evaluated_first() -> None:
    """Nothing is evaluated twice: path and input are those of the first start."""
    case = running("on_crash: again,", word="first")
    first = case.event("node:started")
    second = case.claimed().event("node:started")
    assert (second.path, second.input, second.attempt) == (first.path, first.input, 2)
    assert case.node("a").started_at == first.timestamp


def test_starts_of_this_epoch_are_not_interrupted() -> None:
    """A claim that is recorded twice under one epoch interrupts once."""
    case = running("on_crash: again,").claimed()
    case.epoch -= 1
    case.claimed().then()


@pytest.mark.parametrize(
    ("kind", "policy", "asks"),
    [
        ("shell", "", True),
        ("post", "", True),
        ("http", "", False),
        ("shell", "on_crash: again,", False),
        ("shell", "retry: safe,", False),
        ("http", "on_crash: ask,", True),
        ("http", "retry: never,", True),
    ],
)
def test_what_has_effects_is_asked_about_and_what_only_reads_runs_again(
    kind: str, policy: str, asks: bool
) -> None:
    """The default is by type: shell and non-GET requests ask, GET runs again; `on_crash` and `retry` overrule."""
    case = running(policy, kind).claimed()
    if asks:
        case.then("node:interrupted", "prompt:requested", "flow:paused")
        assert case.prompt.kind == "interrupted"
    else:
        case.then("node:interrupted", "node:started")


def test_done_completes_the_node_with_what_is_not_known() -> None:
    """`done` continues with an output whose unknown parts are null."""
    case = running().claimed()
    case.when(case.answer("done"))
    assert [event.type for event in case.last[:3]] == ["prompt:answered", "flow:resumed", "node:completed"]
    assert case.node("a").output == {"stdout": "", "stderr": "", "exit_code": None, "seconds": None}
    assert case.state.status == "complete"


def test_again_runs_the_node_once_more() -> None:
    """`again` starts it with the same input, the same path and the next attempt."""
    case = running().claimed()
    case.when(case.answer("again")).then("prompt:answered", "flow:resumed", "node:started")
    assert (case.node("a").attempt, case.node("a").epoch) == (2, 2)
    assert case.when(NodeDone("a", 2, OUTPUT)).state.status == "complete"


def test_again_while_the_process_leaves_starts_nothing_yet() -> None:
    """The answer stands, and the node starts when somebody begins work; nobody is asked a second time."""
    case = running().claimed()
    case.only(case.answer("again")).then("prompt:answered", "flow:resumed")
    assert (case.state.phase, case.node("a").status) == ("running", "interrupted")
    case.claimed().then("node:started")


def test_abort_ends_the_session() -> None:
    """`abort` ends it as aborted."""
    case = running().claimed()
    case.when(case.answer("abort")).then("prompt:answered", "flow:resumed", "session:abort", "session:end")
    assert case.state.status == "aborted"


def test_an_interruption_is_resolved_by_its_options_only() -> None:
    """Text resolves nothing, and neither does who may not."""
    case = running().allowing(ANA).claimed()
    case.refused(case.answer(text="done"), InvalidAnswer)
    case.refused(case.answer("Done"), InvalidAnswer)
    assert case.refused(case.answer("done", actor=BEN), NotAllowed) == "ben may not resolve"


def test_every_further_crash_asks_again() -> None:
    """After `again`, another crash is another question: without a person it never starts twice."""
    case = running().claimed()
    case.when(case.answer("again")).claimed()
    case.then("node:interrupted", "prompt:requested", "flow:paused")


def test_three_crashes_of_one_node_are_asked_about() -> None:
    """After three crashes people are asked even about a node that is safe to run again: it may cause the crashes."""
    case = running("on_crash: again,").claimed().claimed()
    assert case.node("a").status == "started"
    case.claimed().then("node:interrupted", "prompt:requested", "flow:paused")
    assert "3 times" in case.prompt.message
    case.when(case.answer("again"))
    assert (case.node("a").status, case.node("a").attempt) == ("started", 4)


@pytest.mark.parametrize("reason", ["cut", "timeout", "lost"])
def test_with_ask_every_loss_of_a_node_is_a_question(
    reason: Literal["cut", "timeout", "lost"],
) -> None:
    """A node with effects that was stopped or lost is never failed or repeated by itself."""
    case = running().when(NodeCut("a", 1, reason))
    case.then("node:interrupted", "prompt:requested", "flow:paused")
    assert case.event("node:interrupted").reason == reason


@pytest.mark.parametrize("reason", ["timeout", "lost"])
def test_with_again_a_timeout_or_lost_connection_is_a_failure(reason: Literal["timeout", "lost"]) -> None:
    """A step that is safe to repeat is not repeated automatically forever: it fails."""
    case = running("on_crash: again,").when(NodeCut("a", 1, reason))
    case.then("node:error", "flow:failed", "session:end")
    assert case.state.error is not None
    assert case.state.error["type"] == reason


def test_with_again_a_cut_runs_again_at_the_next_start() -> None:
    """A cut at shutdown is recorded; whoever begins work next starts the node again."""
    case = running("on_crash: again,").only(NodeCut("a", 1, "cut")).then("node:interrupted")
    assert case.state.phase == "running"
    case.claimed().then("node:started")
    assert case.node("a").attempt == 2


def test_a_late_outcome_of_an_earlier_attempt_is_ignored() -> None:
    """What a zombie reports of the first attempt changes nothing for the second."""
    case = running("on_crash: again,").claimed()
    case.when(NodeDone("a", 1, {"stdout": "zombie"}), NodeBroke("a", 1, {}), NodeCut("a", 1, "cut")).then()
    case.when(NodeDone("a", 2, OUTPUT))
    assert case.node("a").output == OUTPUT


def test_a_late_outcome_does_not_answer_the_question() -> None:
    """While a person is asked, an outcome of the interrupted attempt is ignored."""
    case = running().claimed()
    case.when(NodeDone("a", 1, OUTPUT), NodeBroke("a", 1, {}), NodeCut("a", 1, "timeout")).then()
    assert case.prompt.kind == "interrupted"


def test_a_question_about_an_interruption_that_nobody_answers_fails_the_node() -> None:
    """The flow's deadline holds for it as for every question."""
    case = running().claimed()
    case.when(case.shown()).later(30 * 86400).when(case.timer_due())
    assert case.state.status == "failed"


def test_a_crash_before_the_first_node_loses_nothing() -> None:
    """A session that was started and begun nothing goes on at the next claim."""
    from engine.decide.commands import Start

    case = given("nodes: [{id: a, type: shell, with: {run: [ls]}}]")
    case.only(Start("session-0badcafe", {}, ANA)).then("session:start", "flow:started")
    case.claimed().then("node:started")


def test_a_message_that_is_being_delivered_is_not_interrupted() -> None:
    """Its outbox row carries it over the crash: it is neither repeated nor asked about."""
    case = given("nodes: [{id: a, type: message, with: {text: Hello}}]").started()
    case.claimed().then()
    assert case.when(NodeDone("a", 1, {"channel": "C1", "ts": "1.5"})).state.status == "complete"


def test_waits_and_questions_survive_a_crash_untouched() -> None:
    """A claim of a paused session writes nothing."""
    case = given("nodes: [{id: w, type: wait, with: {for: 1h}}]").started()
    case.claimed().then()
    case = given("nodes: [{id: q, type: ask, with: {message: Go?}}]").started()
    case.claimed().then()
    case.when(Begin()).then()
