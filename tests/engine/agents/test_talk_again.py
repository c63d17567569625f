"""A failed agent is retried at the failed turn, and an agent whose provider is unavailable waits."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from engine.decide import past
from engine.decide.commands import NodeCut
from engine.journal.events import NodeFailing
from engine.journal.fold import derive_state
from engine.journal.snapshot import from_bytes, to_bytes
from engine.language import timestamps
from engine.language.errors import SessionError
from tests.engine.agents.talks import DONE, Talk, talk
from tests.support.engine import ANA, START

SHELL = 'tools: [shell: {commands: ["restart *"]}, ask_human]\nmax_turns: 5'
ASKS = "    on_error: ask\n"


def after_a_tool(rest: str = ASKS) -> Talk:
    """A conversation whose tool has run, and whose next model call is in progress."""
    case = talk(SHELL, rest=rest).model("I restart it.", ("shell", {"command": "restart db"}))
    return case.tool("tool[0]", DONE)


def test_try_again_goes_on_at_the_turn_that_failed() -> None:
    """The same messages are sent, tool results too, and no tool runs a second time."""
    case = after_a_tool()
    before = case.request()["messages"]
    case.when(case.broke("access_denied", retryable=False))
    case.state = from_bytes(to_bytes(case.state))
    case.decide("retry")
    assert case.request()["messages"] == before
    assert list(case.state.launched) == ["helper/turn[2]"]
    assert [event.type for event in case.events].count("agent:toolRequested") == 1
    case.model("Fine now.")
    assert case.node("helper").output["turns"] == 2
    assert derive_state(case.events) == case.state


def test_it_goes_on_again_after_every_failure() -> None:
    """Twice tried again is no different, and a kill in between neither."""
    case = after_a_tool()
    before = case.request()["messages"]
    for _ in range(2):
        case.when(case.broke("access_denied", retryable=False)).claimed()
        case.decide("retry").claimed()
        assert case.request()["messages"] == before


def test_caps_count_over_all_tries() -> None:
    """What was used before the failure is used."""
    case = after_a_tool().when()
    spent = case.agent.spent
    case.when(case.broke("access_denied", retryable=False)).decide("retry")
    assert case.agent.spent.turns == spent.turns == 1


def test_a_call_that_was_cut_off_is_told_and_not_made_again() -> None:
    """The agent ran out of time while a tool ran: the model learns that nobody knows what became of it."""
    case = talk(SHELL, rest=f"    timeout: 1h\n{ASKS}")
    case.model("", ("shell", {"command": "restart db"}), ("shell", {"command": "restart web"}))
    case.tool("tool[0]", DONE).due("timeout")
    path = next(path for path in case.state.launched if path.endswith("tool[1]"))
    case.when(NodeCut(path, 1, "cut")).decide("retry")
    assert list(case.state.launched) == ["helper#2/turn[1]"]
    assert "cut off before it had a result" in case.said()
    assert "done" in case.said()


def test_a_question_that_was_withdrawn_is_told_as_such() -> None:
    """The agent ran out of time while a person was asked."""
    ask = ("ask_human", {"question": "Which one?"})
    case = talk(SHELL, rest=f"    timeout: 1h\n{ASKS}").model("", ask).due("timeout")
    case.decide("retry")
    assert "cut off before it had a result" in case.said()


def test_without_what_is_kept_the_conversation_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that these tests are for, put back: the fold forgets the conversation of an agent that ran out of time."""
    case = after_a_tool("    timeout: 1h\n" + ASKS)
    before = case.request()["messages"]
    forget = NodeFailing.fold
    monkeypatch.setattr(NodeFailing, "fold", lambda event, state: forget(replace(event, keeps=None), state))
    case.due("timeout")
    case.when(NodeCut(case.calling, 1, "cut")).decide("retry")
    assert case.request()["messages"] != before


# --- the provider is away ----------------------------------------------------------------------------------


def fails(case: Talk, kind: str = "overloaded", **details: Any) -> float:
    """The call fails and is waited for; after how many seconds it is made again, when that has come."""
    case.when(case.broke(kind, **details))
    assert ([timer.purpose for timer in case.state.timers.values()], case.state.phase) == (
        ["retry"],
        "waiting",
    )
    before = case.now
    return timestamps.seconds_between(before, case.due("retry").now)


@pytest.mark.parametrize("kind", ["overloaded", "rate_limited", "unavailable", "stream_cut"])
def test_an_outage_of_hours_is_waited_out(kind: str) -> None:
    """Waits grow to five minutes, with jitter, and nothing fails; then the conversation continues."""
    case = after_a_tool(rest="")
    before = case.request()["messages"]
    waits = [fails(case, kind) for _ in range(60)]
    assert waits[0] < 3 < waits[3]
    assert all(240 <= wait <= 360 for wait in waits[10:])
    assert len(set(waits[10:])) > 1
    assert timestamps.seconds_between(START, case.now) > 3 * 3600
    assert case.request()["messages"] == before
    assert case.model("Here again.").state.outcome == "complete"


def test_the_provider_says_when_to_come_back() -> None:
    """`retry-after` is kept where it is longer."""
    assert fails(after_a_tool(rest=""), "rate_limited", retryAfter=900.0) == 900.0


def test_refused_calls_use_up_no_cap() -> None:
    """What was set aside for a call that was refused before any answer is free again."""
    case = talk("max_cost: 1")
    for _ in range(40):
        fails(case)
    assert case.agent.spent.unsure == "0"


def test_a_call_that_was_not_sent_uses_up_no_cap() -> None:
    """A server of tools that does not answer, say: whatever the reason is, nothing can have been paid."""
    case = talk("max_cost: 1")
    for _ in range(4):
        fails(case, "mcp", unsent=True)
    assert (case.agent.spent.unsure, case.agent.spent.unsure_tokens) == ("0", 0)


def test_a_refused_call_that_fails_the_agent_uses_up_no_cap() -> None:
    """Nor does the last one, with which the agent gives up."""
    case = talk("max_cost: 1", rest="    retry: {attempts: 1}\n    on_error: fail\n")
    case.when(case.broke())
    assert case.state.outcome == "failed"
    assert (case.state.spent.unsure, case.state.spent.unsure_tokens) == ("0", 0)


def test_the_deadline_ends_an_outage() -> None:
    """A call fails for good that could only be tried again after `limits.deadline`, counted from its beginning."""
    head = "limits: {deadline: 10m}\ninputs:\n  service: {type: string, default: db}\n"
    case = talk(head=head, rest="    on_error: fail\n")
    while case.state.outcome is None:
        assert timestamps.seconds_between(START, case.now) <= 600
        case.when(case.broke())
        if case.state.timers:
            case.due("retry")
    assert (case.state.error or {})["type"] == "overloaded"


def test_the_timeout_of_the_agent_ends_an_outage() -> None:
    """The wait counts like any other work of the agent."""
    case = talk(rest="    timeout: 1m\n")
    case.when(case.broke()).due("timeout")
    assert (case.state.error or {})["type"] == "timeout"


def test_what_the_author_says_about_retries_holds() -> None:
    """`retry: {attempts: 2}` gives up after the second failure of a call: it is not about the whole conversation."""
    case = talk(rest="    retry: {attempts: 2, delay: 1s}\n    on_error: fail\n")
    fails(case)
    case.when(case.broke())
    assert (case.state.outcome, case.node("helper").attempt) == ("failed", 1)


def test_whoever_writes_to_it_has_it_tried_at_once() -> None:
    """The words are in the call that is made then."""
    case = after_a_tool(rest="")
    case.when(case.broke())
    assert not case.state.launched
    case.when(case.message("is it back?"))
    assert list(case.state.launched) == ["helper/turn[2]"]
    assert "is it back?" in case.said()
    assert not case.state.timers


def test_it_can_be_ended_meanwhile() -> None:
    """An abort does not wait for the provider."""
    case = after_a_tool(rest="")
    case.when(case.broke()).when(case.abort())
    assert case.state.outcome == "aborted"


def test_the_next_try_of_a_run_that_its_agent_failed_makes_the_last_call_again() -> None:
    """With `on_error: fail` the run ends at a model call; the next try continues there, with what tools gave before it."""
    case = after_a_tool("    on_error: fail\n")
    case.when(case.broke("access_denied", retryable=False))
    assert case.state.ended
    seq, path = past.failed_at(case.events)
    assert path == "helper/turn[2]"
    assert seq > max(event.seq for event in case.events if event.type == "agent:toolResult")
    again = past.fork(case.events, seq, "session-again", ANA, case.now, "e", again=path)
    assert again.state.nodes[path].reason == "left"


def test_the_next_try_does_not_go_back_behind_what_a_tool_has_done() -> None:
    """Out of time while one of two tools ran, and the other had run: the call that asked for both is not made again."""
    case = talk(SHELL, rest="    timeout: 1h\n    on_error: fail\n")
    case.model("", ("shell", {"command": "restart db"}), ("shell", {"command": "restart web"}))
    case.tool("tool[0]", DONE).due("timeout")
    path = next(path for path in case.state.launched if path.endswith("tool[1]"))
    case.when(NodeCut(path, 1, "cut"))
    assert case.state.ended
    with pytest.raises(SessionError, match="Start a new run"):
        past.failed_at(case.events)
