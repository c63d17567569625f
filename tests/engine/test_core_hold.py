"""A person pauses a session: everything is recorded and nothing starts until it is resumed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.decide.agents.kinds import KINDS
from engine.decide.commands import Abort, Due, Hold, NodeBroke, NodeCut, NodeDone, Resume, Steer
from engine.decide.due import due
from engine.journal.snapshot import to_json
from engine.language.errors import EmptyMessage, NotAllowed, SessionEnded, SessionRunning
from tests.engine.agents.talks import talk
from tests.support.engine import ANA, BEN, Scenario, given

ASK = "nodes: [{id: q, type: ask, with: {message: How?, timeout: 10m}}, {id: b, type: shell, with: {run: [ls]}}]"
INPUTS = (
    "limits: {deadline: 1h}\ninputs: {a: {type: string}, b: {type: string}}\nnodes: [{id: n, type: noop}]"
)


def held(flow: str, **inputs: str) -> Scenario:
    """A session that ana has paused."""
    case = given(flow).started()
    return case.when(Hold(ANA, "lunch"))


def go_on(case: Scenario) -> Scenario:
    """Resume it."""
    return case.when(Resume("go on", ANA, "resume"))


def test_a_held_session_says_who_and_why() -> None:
    """It is paused, with its reason; a second hold changes nothing."""
    case = held(ASK)
    case.then("flow:paused")
    assert (case.state.status, case.state.phase, case.state.pause_reason) == ("paused", "held", "lunch")
    case.when(Hold(BEN)).then()


def test_an_answer_to_a_held_session_counts_and_starts_nothing() -> None:
    """The node completes; the next one starts at the resume, and the message stands after all others."""
    case = held(ASK)
    case.when(case.answer(text="fine")).then("prompt:answered", "node:completed")
    go_on(case).then("flow:resumed", "session:message", "node:started")
    assert case.state.messages[-1]["text"] == "go on"


def test_a_resume_of_what_still_waits_waits_again() -> None:
    """Nothing can run, so the session is paused again, waiting."""
    go_on(held(ASK)).then("flow:resumed", "session:message", "flow:paused")


def test_a_deadline_passes_while_a_session_is_held() -> None:
    """Clocks of questions do not stop; the failure counts at the resume."""
    case = given(ASK).started()
    case.when(case.shown(), Hold(ANA)).later(600)
    case.when(case.timer_due()).then("timer:fired", "prompt:expired", "node:error")
    assert case.state.phase == "held"
    go_on(case).then("flow:resumed", "session:message", "flow:failed", "session:end")


def test_inputs_are_answered_while_a_session_is_held() -> None:
    """The answer is kept; the next question comes at the resume."""
    case = held(INPUTS)
    case.when(case.answer(text="one")).then("prompt:answered")
    assert case.state.phase == "held"
    go_on(case).then("flow:resumed", "session:message", "prompt:requested", "flow:paused")
    case.when(case.answer(text="two"))
    assert case.state.status == "complete"
    assert case.state.inputs == {"a": "one", "b": "two"}


def test_an_input_expires_while_a_session_is_held() -> None:
    """Nobody gave it in time: the flow fails at the resume."""
    case = given(INPUTS).started()
    case.when(case.shown(), Hold(ANA)).later(3600)
    case.when(case.timer_due()).then("timer:fired", "prompt:expired")
    go_on(case).then("flow:resumed", "session:message", "flow:failed", "session:end")


def test_a_wait_ends_while_a_session_is_held() -> None:
    """The wait completes; what follows starts at the resume."""
    case = held("nodes: [{id: w, type: wait, with: {for: 1m}}, {id: b, type: shell, with: {run: [ls]}}]")
    case.later(60).when(case.timer_due()).then("timer:fired", "node:completed")
    go_on(case).then("flow:resumed", "session:message", "node:started")


def test_a_delivery_that_fails_while_a_session_is_held_is_tried_again() -> None:
    """A retry is due at its time and starts at the resume."""
    flow = "nodes: [{id: m, type: message, with: {text: Hi}, retry: {attempts: 2, delay: 1m}}]"
    case = held(flow)
    case.when(NodeBroke("m", 1, {"type": "channel", "message": "not there"})).then("node:retried")
    case.later(60).when(case.timer_due()).then("timer:fired")
    go_on(case).then("flow:resumed", "session:message", "node:started")
    assert case.when(NodeDone("m", 2, {"channel": "C1", "ts": "1"})).state.status == "complete"


def test_an_interruption_is_resolved_while_a_session_is_held() -> None:
    """`again` is kept and the node starts at the resume."""
    case = given("nodes: [{id: a, type: shell, with: {run: [ls]}}]").started().claimed()
    case.when(Hold(ANA))
    case.when(case.answer("again")).then("prompt:answered")
    go_on(case).then("flow:resumed", "session:message", "node:started")


def test_a_held_session_can_be_aborted() -> None:
    """It ends at once."""
    case = held(ASK)
    case.when(case.abort()).then("session:abort", "prompt:cancelled", "session:end")


AT_ITS_LIMIT = """
nodes:
  - id: l
    type: loop
    timeout: 1h
    with: {while: "{{ true }}", max_iterations: 1, on_limit: ask}
    body: [{id: n, type: noop}]
"""
TIMED = "    timeout: 1h\n"


def stuck() -> Scenario:
    """An agent whose model declined to continue."""
    return talk(rest=TIMED).model(stop="refusal")


@pytest.mark.parametrize("choice", range(4))
@pytest.mark.parametrize(
    "asking",
    [lambda: given(AT_ITS_LIMIT).started(), lambda: talk("max_cost: 0.01", rest=TIMED), stuck],
    ids=["limit", "budget", "outcome"],
)
def test_an_answer_does_not_save_a_container_that_ran_out_of_time_while_held(
    asking: Callable[[], Scenario], choice: int
) -> None:
    """Whatever people say, the answer is kept, nothing follows it, and the node fails at the resume."""
    case = asking()
    offered = case.prompt.options[choice % len(case.prompt.options)]["value"]
    case.when(case.shown(), Hold(ANA)).later(3600)
    case.when(*(Due(timer_id) for timer_id, timer in case.state.timers.items() if timer.purpose == "timeout"))
    said = {"tell": {"text": "look again"}, "model": {"value": "model", "reason": "claude-haiku-4-5"}}
    case.when(case.answer(**said.get(offered, {"value": offered}))).then("prompt:answered")
    go_on(case)
    assert case.state.outcome == "failed"
    assert case.event("flow:failed").error["type"] == "timeout"


def test_hold_and_resume_are_refused_where_they_mean_nothing() -> None:
    """Ended sessions are not held, running ones not resumed, and a resume needs words."""
    case = given(ASK).started()
    assert "not paused" in case.refused(Resume("x", ANA, "k"), SessionRunning)
    case.when(Hold(ANA))
    case.refused(Resume(" ", ANA, "k"), EmptyMessage)
    case.when(case.abort())
    case.refused(Hold(ANA), SessionEnded)
    case.refused(Resume("x", ANA, "k"), SessionEnded)


@pytest.mark.parametrize(("command", "action"), [(Hold(BEN), "pause"), (Resume("x", BEN, "k"), "resume")])
def test_who_may_not_is_refused(command: Hold | Resume, action: str) -> None:
    """The policy is asked for `pause` and `resume`."""
    case = held(ASK).allowing(ANA)
    if action == "pause":
        go_on(case)
    assert case.refused(command, NotAllowed) == f"ben may not {action}"


def test_a_resume_counts_once() -> None:
    """The same resume again yields nothing, even when the session is held once more."""
    case = go_on(held(ASK))
    case.when(Hold(ANA))
    go_on(case).then()
    assert case.state.phase == "held"


TWO = """
nodes:
  - {id: a, type: shell, with: {run: [a]}}
  - {id: b, type: shell, with: {run: [b]}}
"""


def pausing(flow: str) -> Scenario:
    """A session that ana pauses while a node runs that does not leave."""
    case = given(flow).started()
    return case.when(Hold(ANA, "lunch", waits=True))


def test_what_does_not_leave_at_once_is_seen_to_be_waited_for() -> None:
    """The session is pausing, which a second pause does not change, and is held with the outcome of what ran."""
    case = pausing(TWO)
    case.then("flow:pausing")
    assert (case.state.status, case.state.phase) == ("running", "pausing")
    case.when(Hold(BEN, "tea", waits=True)).then()
    case.when(NodeDone("a", 1, {})).then("node:completed", "flow:paused")
    assert (case.state.phase, case.state.pause_reason) == ("held", "lunch")
    assert case.last[-1].to_wire()["actor"]["id"] == ANA.id
    go_on(case).then("flow:resumed", "session:message", "node:started")


def test_a_last_node_that_completes_while_the_session_is_pausing_ends_it() -> None:
    """Completion wins: nothing is left to pause."""
    case = pausing("nodes: [{id: a, type: shell, with: {run: [a]}}]")
    case.when(NodeDone("a", 1, {})).then("node:completed", "flow:completed", "session:end")


def test_a_crash_while_a_session_is_pausing_holds_it() -> None:
    """What ran is interrupted, and nothing starts until somebody resumes."""
    case = pausing(TWO)
    case.claimed().then("node:interrupted", "prompt:requested", "flow:paused")
    assert case.state.phase == "held"
    assert due(case.flow, case.state, KINDS) == []


def test_a_session_that_is_pausing_can_be_ended() -> None:
    """An abort comes first; what still runs ends before that is said."""
    case = pausing(TWO)
    case.when(Abort(ANA)).then("session:abort")
    case.when(NodeDone("a", 1, {})).then("node:completed", "session:end")
    assert case.state.status == "aborted"


def test_an_answer_counts_while_a_session_is_pausing() -> None:
    """A question beside what runs is answered, and what follows it waits for the resume."""
    case = given(
        """
nodes:
  - id: both
    type: parallel
    branches:
      left: [{id: a, type: shell, with: {run: [a]}}]
      right: [{id: q, type: ask, with: {message: How?}}, {id: b, type: shell, with: {run: [b]}}]
"""
    ).started()
    case.when(case.shown(), Hold(ANA, "lunch", waits=True))
    case.when(case.answer(text="fine")).then("prompt:answered", "container:childCompleted")
    assert due(case.flow, case.state, KINDS) == []
    case.when(NodeDone("both[left]/a", 1, {}))
    assert case.state.phase == "held"


def test_pending_messages_are_those_that_nothing_took() -> None:
    """A message is pending until a node begins after it, and discarded at an abort; the state names both lists."""
    case = given(
        "nodes: [{id: a, type: shell, on_crash: again, with: {run: [a]}}, {id: q, type: ask, with: {message: How?}}]"
    )
    case.started().when(Steer("while it runs", ANA, "m1"))
    case.only(NodeCut("a", 1, "cut")).when(Hold(ANA, "lunch"))
    assert to_json(case.state)["pendingMessages"] == ["while it runs"]
    go_on(case).when(NodeDone("a", 2, {}))
    assert to_json(case.state)["pendingMessages"] == []
    assert [message["text"] for message in to_json(case.state)["messages"]] == ["while it runs", "go on"]
    case.when(Steer("nobody waits for this", ANA, "m2"))
    assert to_json(case.state)["pendingMessages"] == ["nobody waits for this"]
    assert to_json(case.when(case.abort()).state)["pendingMessages"] == []
