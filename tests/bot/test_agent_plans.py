"""The plan of an agent: stated by a tool, shown as a checklist that changes where it is."""

from __future__ import annotations

import io
from typing import Any

import pytest
from msgspec.structs import replace

from bot.faces.tools import plan_steps
from bot.intents import agent_rows
from bot.intents.slots import SPEECH
from bot.rendering.agents import Entry, agent_message
from bot.terminal.console import Paint
from bot.terminal.described import described, painted
from bot.workspace.blocks import check_message
from engine.decide.commands import Due, NodeCut, Steer
from engine.flow.load import load_flow
from engine.journal import events as ev
from engine.journal.records import PutOutbox
from engine.journal.state import State
from engine.language.codec import Json
from engine.language.errors import FlowError
from tests.bot.test_agent_rendering import Told, shown
from tests.engine.agents.talks import HEAD, folds_otherwise
from tests.support.engine import ANA, flow_of

PLANS = HEAD.replace("{{ inputs.service }}", "web") + "      tools: [plan, write_file]\n"
LOOK, FIX, TELL = "Look at the log", "Fix the pool", "Tell people"


def stated(*statuses: str) -> tuple[str, dict[str, Json]]:
    """A call that states three steps with these states."""
    titles = (LOOK, FIX, TELL)
    return "plan", {"steps": [{"title": t, "status": s} for t, s in zip(titles, statuses, strict=True)]}


def planned(more: str = "") -> Told:
    """An agent that has begun, and has stated a plan."""
    talk = Told(flow_of(PLANS + more)).allowing(ANA).started()
    talk.model("Let me plan.", stated("in_progress", "pending", "pending"))
    return talk


def plans(talk: Told) -> list[tuple[str, dict[str, Any]]]:
    """The rows of plans: key and payload."""
    found = [(row.key, shown(row)) for row in talk.rows if row.key.startswith(SPEECH + ":")]
    return [(key, payload) for key, payload in found if "plan" in payload]


def test_a_plan_is_journaled_and_the_model_goes_on_at_once() -> None:
    """The call and its result are events, nobody is asked, and the next model call is in progress with the result."""
    talk = planned("      approvals: {'*': [approve, reject]}\n")
    assert [event.name for event in talk.events if isinstance(event, ev.AgentToolRequested)] == ["plan"]
    assert "shown" in talk.said()
    assert talk.calling == "helper/turn[2]"


def test_a_plan_is_one_entry_that_each_call_replaces() -> None:
    """No line of a call is beside it, and ticking a step changes the same row."""
    talk = planned()
    talk.model("Found it.", stated("complete", "in_progress", "pending"))
    (first, before), (second, after) = plans(talk)
    assert first == second
    assert before["plan"][0] == [LOOK, "in_progress"]
    assert after["plan"][:2] == [[LOOK, "complete"], [FIX, "in_progress"]]
    assert not any("tools" in shown(row) for row in talk.rows)


def asked_next(talk: Told) -> Told:
    """The agent has answered, and is asked something else."""
    return talk.model("Done.").when(Steer("And the other one?", ANA, "message:T1:C1:9.5"))


FULL = {"input_tokens": 900_000, "output_tokens": 20}


def summed_up(talk: Told) -> Told:
    """Its conversation is replaced by a summary."""
    talk.model("", ("write_file", {"path": "a", "content": "b"}), usage=FULL).tool("tool[0]", {"path": "a"})
    assert talk.request()["purpose"] == "compact"
    return talk.model("A summary.")


def test_a_question_after_the_answer_has_a_plan_of_its_own() -> None:
    """What was planned for an earlier answer stays as it was, after a summary of the conversation too."""
    talk = asked_next(planned("      follow_up: 7d\n"))
    talk.model("", stated("in_progress", "pending", "pending"))
    summed_up(talk.model("", stated("complete", "in_progress", "pending")))
    talk.model("", stated("complete", "complete", "in_progress"))
    keys = [key for key, _ in plans(talk)]
    assert [keys.index(key) for key in keys] == [0, 0, 2, 2, 2]


def test_a_plan_outlives_a_summary_of_the_conversation() -> None:
    """It is ticked where it is, and its last step turns no longer once the agent has answered."""
    talk = summed_up(planned()).model("", stated("complete", "in_progress", "pending"))
    summed_up(talk).model("Done.")
    assert len({key for key, _ in plans(talk)}) == 1
    assert [payload["over"] for _, payload in plans(talk)] == [False, False, True]


def test_an_agent_that_is_tried_again_goes_on_with_its_plan() -> None:
    """It turns no longer while people are asked, and is ticked where it is afterwards."""
    talk = planned("    timeout: 1h\n    on_error: ask\n").later(3600)
    talk.when(Due(next(timer.timer_id for timer in talk.state.timers.values() if timer.purpose == "timeout")))
    talk.when(NodeCut(talk.calling, 1, "cut")).decide("retry")
    again = talk.reply("", stated("complete", "in_progress", "pending"))
    again.output["content"][0]["id"] = "toolu_again"
    talk.when(again).model("Done.")
    assert len({key for key, _ in plans(talk)}) == 1
    assert [payload["over"] for _, payload in plans(talk)] == [False, True, False, True]


@pytest.mark.parametrize("rest", ["", "      follow_up: 7d\n"])
def test_a_step_that_is_left_open_turns_no_longer(rest: str) -> None:
    """An agent that answers without ticking its last step leaves no step that looks as if it were worked on."""
    talk = planned(rest).model("Done.")
    assert [payload["over"] for _, payload in plans(talk)] == [False, True]


def test_a_plan_whose_session_is_ended_turns_no_longer() -> None:
    """Nobody waits for a step of an agent that was cut off."""
    talk = planned()
    talk.when(talk.abort())
    assert plans(talk)[-1][1]["over"] is True


@pytest.mark.parametrize(
    "wrong", [{"steps": []}, {"steps": [{"title": "x", "status": "soon"}]}, {"steps": "x"}, {}]
)
def test_a_plan_that_is_none_is_refused_to_the_model(wrong: dict[str, Json]) -> None:
    """It reads what is wrong; people see a call that failed, and no plan."""
    talk = Told(flow_of(PLANS)).started()
    talk.model("", ("plan", wrong))
    assert "does not fit the tool's schema" in talk.said()
    assert plans(talk) == []
    *_, tools = (shown(row)["tools"] for row in talk.rows if "tools" in shown(row))
    assert [tool["isError"] for tool in tools] == [True]


def test_a_plan_is_a_native_block_and_lines_in_the_text() -> None:
    """Slack's plan block with a task a step; in words and marks for notifications; both within the limits."""
    steps = plan_steps(*stated("complete", "in_progress", "pending"))
    message = agent_message([Entry("I begin."), Entry(plan=steps)], "agent:s:t:0")
    (native,) = [block for block in message.blocks if block["type"] == "plan"]
    assert native["title"] == "Plan · 1 of 3 done"
    assert [(task["title"], task["status"]) for task in native["tasks"]] == [
        (LOOK, "complete"), (FIX, "in_progress"), (TELL, "pending"),
    ]  # fmt: skip
    check_message(message.text, message.blocks)
    assert f"*Plan · 1 of 3 done*\n✅ {LOOK}\n▶️ {FIX}\n▫️ {TELL}" in message.text


def test_a_step_that_was_left_says_so() -> None:
    """It is not a task in progress any more."""
    steps = plan_steps(*stated("complete", "in_progress", "pending"))
    message = agent_message([Entry(plan=steps, over=True)], "agent:s:t:0")
    (native,) = [block for block in message.blocks if block["type"] == "plan"]
    assert [task["status"] for task in native["tasks"]] == ["complete", "pending", "pending"]
    assert "left open" in str(native["tasks"][1]["details"])


def test_words_of_a_step_are_text() -> None:
    """A title mentions nobody, leads nowhere and is one line."""
    name, given = stated("pending", "pending", "pending")
    given["steps"][0]["title"] = "<!here> *x* <https://evil.example|y>\n```\nz"
    message = agent_message([Entry(plan=plan_steps(name, given))], "agent:s:t:0")
    assert "<!here>" not in message.text
    assert "<https:" not in message.text
    (plan,) = [block for block in message.blocks if block["type"] == "plan"]
    assert "\n" not in plan["tasks"][0]["title"]  # which has no markup
    check_message(message.text, message.blocks)


def test_a_terminal_shows_a_plan_in_lines() -> None:
    """Each step with its sign below the call."""
    talk = planned()
    (event,) = [event for event in talk.events if isinstance(event, ev.AgentToolRequested)]
    (line,) = [painted(found, Paint(io.StringIO())) for found in described(talk.state, event)]
    assert [part.strip() for part in line.split("\n")][1:] == [f"▶️ {LOOK}", f"▫️ {FIX}", f"▫️ {TELL}"]


def test_nobody_decides_about_a_plan() -> None:
    """A rule for it is a mistake in the flow; a tool of the flow's own that has its name is decided like any other."""
    ruled = PLANS + "      approvals: {plan: [approve, reject]}\n"
    with pytest.raises(FlowError, match="a plan only shows what the model does; there is nothing to approve"):
        load_flow("flow: f\n" + ruled, "f.yml")
    own = "tools:\n  plan: {description: Makes a plan, type: set, with: {a: 1}}\n"
    assert load_flow("flow: f\n" + own + ruled, "f.yml")


@pytest.mark.parametrize("fault", ["forgotten", "counted", "kept"])
def test_a_plan_in_a_wrong_place_is_noticed(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Seeded faults: a summary takes the plan with the conversation; a plan is known by the answers before it, of which a summary
    leaves none; an answer leaves its plan to the next question."""
    if fault == "forgotten":
        folds_otherwise(monkeypatch, "agent:compacted", lambda agent, after: replace(after, plan=None))
    elif fault == "counted":
        monkeypatch.setattr(agent_rows, "_plan_row", counted)
    else:
        folds_otherwise(monkeypatch, "agent:message", lambda agent, after: replace(after, plan=agent.plan))
    with pytest.raises(AssertionError):
        test_a_question_after_the_answer_has_a_plan_of_its_own()
        test_a_plan_outlives_a_summary_of_the_conversation()


def counted(state: State, turn: str, steps: Any, *, over: bool = False) -> PutOutbox:
    """The row of a plan, as the first release of it made it."""
    agent = agent_rows._agent(state, turn)
    said = agent.messages.values() if agent is not None else ()
    answers = sum(message["role"] == "assistant" and "tool_use" not in str(message) for message in said)
    payload = {"plan": [list(step) for step in steps], "over": over}
    return agent_rows.entry_row(state, f"agent:s:helper:plan[{answers}]", turn, payload)
