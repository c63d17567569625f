"""The card of a session: what it says, and that it fits whatever the flow."""

from __future__ import annotations

from hypothesis import given, settings
from immutables import Map
from msgspec.structs import replace

from bot.faces.end import log_of
from bot.faces.words import Code, Said, Step, When
from bot.rendering.blocks import MOST_UNITS, plan_block, size
from bot.rendering.home import START, HomePage, Run, home_view
from bot.rendering.notes import RETRY
from bot.rendering.prompts import question_message
from bot.workspace.blocks import check_message
from engine.journal.state import Frame, NodeRun, State, TimerRun
from tests.bot.rendering_cases import (
    BEN,
    HOSTILE,
    T0,
    T1,
    Flow,
    Node,
    buttons,
    card,
    end_note,
    plain_texts,
    prompt,
    session,
    sessions,
    texts,
)
from tests.support.proving import tries

FLOW = Flow()


def said(state: State, flow: Flow = FLOW) -> str:
    """All mrkdwn of a card."""
    return "\n".join(texts(card(state, flow, T1).blocks))


def test_a_card_shows_the_flow_its_requester_inputs_and_every_node() -> None:
    """Title, who started it, inputs, and one line for each node with what became of it."""
    made = card(session(prompt()), FLOW, T1)
    assert made.blocks[0]["text"]["text"] == "🟡 rollback"
    assert made.blocks[0]["block_id"] == "card:session-1"
    assert "Started by <@U0LOCALANA>" in said(session(prompt()))
    assert "service: checkout" in plain_texts(made.blocks)
    assert "✅ Plan · 12s\n🟡 Gate · waiting for @sre\n▫️ Tell" in said(session(prompt()))


def test_the_nodes_are_a_plan_where_slack_takes_one() -> None:
    """Each line is a task with its state; whom it waits for and times are Slack's own, nested nodes are marked."""
    made = card(session(prompt(who=["ben@example.com"])), FLOW, T1, ids={"ben@example.com": "U0LOCALBEN"})
    (plan,) = [block for block in made.blocks if block["type"] == "plan"]
    assert plan["title"] == "1 of 3 steps done"
    assert [(task["title"], task["status"]) for task in plan["tasks"]] == [
        ("Plan", "complete"),
        ("🟡 Gate", "in_progress"),
        ("Tell", "pending"),
    ]
    steps = [
        Step("❌", ("Try",), (Said("<bad>"), " ", Code("rm &"), " until ", When(T1, "clock"))),
        Step("🟡", ("Inner: ", Code("df -h")), depth=1),
        Step("", ("… 3 more",)),
    ]
    first, inner, rest = plan_block("x", steps)["tasks"]
    assert first["details"]["elements"][0]["elements"] == [
        {"type": "text", "text": "<bad> "},
        {"type": "text", "text": "rm &", "style": {"code": True}},
        {"type": "text", "text": " until "},
        {"type": "date", "timestamp": 1795300992, "format": "{time}", "fallback": "2026-11-21 22:43 UTC"},
    ]
    assert (first["status"], inner["title"], rest["title"]) == ("error", "› 🟡 Inner: df -h", "… 3 more")


def test_the_first_line_says_what_it_waits_for_and_on_whom() -> None:
    """On a phone only the first line may be seen: it has the state, who is waited for, and the node."""
    assert texts(card(session(prompt()), FLOW, T1).blocks)[0] == "🟡 *Waiting* for @sre · Gate"


def test_a_timer_is_shown() -> None:
    """A wait's end is beside its node."""
    timer = TimerRun("t", "gate", T1, "wait", None)
    assert "🟡 Gate · until 2026-11-21 22:43 UTC" in said(session(timers=Map({"t": timer})))


def test_a_card_says_what_is_missing_for_what_is_to_come() -> None:
    """A secret that is not set is on the card from the start."""
    made = card(session(prompt()), FLOW, T1, lacks=["secret TOKEN is not set: set SAYSO_SECRET_TOKEN"])
    assert "⚠️ Missing, but needed later: secret TOKEN is not set" in "".join(plain_texts(made.blocks))


def test_a_card_names_the_end_at_which_its_flow_ended() -> None:
    """A flow that ended early as a success says at which `end`."""
    run = NodeRun("done", "end", 1, "completed")
    ended = session(phase="ended", outcome="complete", active=Map())
    root = Frame("", nodes=Map({"done": "done"}))
    ended = replace(ended, nodes=ended.nodes.set("done", run), frames=Map({"": root}))
    assert "at `done`" in texts(card(ended, FLOW, T1).blocks)[0]


def test_an_open_session_can_be_cancelled_and_an_ended_one_cannot() -> None:
    """The button asks before it acts, carries the session's id, and is gone at the end."""
    (cancel,) = buttons(card(session(prompt()), FLOW, T1).blocks)
    assert (cancel["action_id"], cancel["value"], cancel["text"]["text"]) == (
        "sayso:cancel",
        "session-1",
        "Cancel",
    )
    assert cancel["confirm"]["confirm"]["text"] == "Cancel run"
    assert buttons(card(session(phase="ended", outcome="complete"), FLOW, T1).blocks) == []


def test_the_end_is_summed_up() -> None:
    """An ended card says how and after how long, and counts what was done and what was not; what failed is not counted as
    done, and its error is said once, with its place."""
    run = NodeRun("gate", "approval", 1, "failed", T0, T1, error={"message": "boom <!here>"})
    ended = session(phase="ended", outcome="failed", error=run.error, active=Map())
    ended = replace(ended, nodes=ended.nodes.set("gate", run))
    first = texts(card(ended, FLOW, T1).blocks)[0]
    assert first == "❌ *Failed* after 3m 12s · 1 done · 1 failed · 1 not run\nGate: boom &lt;!here&gt;"
    assert said(ended).count("boom") == 1
    plan = next(block for block in card(ended, FLOW, T1).blocks if block["type"] == "plan")
    assert (plan["title"], "boom" in str(plan)) == ("1 of 3 steps done", False)
    assert "▫️ Tell · not run" in said(ended)


def test_a_node_that_a_loop_edge_led_back_to_is_shown_once() -> None:
    """Its latest visit is in its own place; it counts as run, and is not told as not done."""
    nodes = Map({"plan~3": NodeRun("plan", "shell", 0, "completed", T0, T1)})
    ended = session(phase="ended", outcome="failed", error={"message": "used up"}, nodes=nodes, active=Map())
    told = said(ended)
    assert told.splitlines()[0] == "❌ *Failed* after 3m 12s · 1 done · 2 not run"
    assert told.endswith("✅ Plan (3) · 3m 12s\n▫️ Gate · not run\n▫️ Tell · not run")
    assert "*Not done:* Gate, Tell." in end_note(ended, FLOW, "end:1").text


def test_what_was_cut_in_the_middle_is_said_to_be_unknown() -> None:
    """A node with effects that had no outcome at the end is not shown as done, failed or running."""
    run = NodeRun("plan", "shell", 0, "interrupted", T0)
    ended = session(phase="ended", outcome="aborted", nodes=Map({"plan": run}), active=Map({"plan": None}))
    assert "⚠️ Plan · outcome unknown" in said(ended)


def test_inputs_and_errors_are_inert() -> None:
    """What people gave and what programs said carries no markup, and long values are cut."""
    run = NodeRun("plan", "shell", 0, "failed", T0, T1, error={"message": HOSTILE})
    state = session(inputs={"service": HOSTILE + "x" * 500}, nodes=Map({"plan": run}), active=Map())
    made = card(state, FLOW, T1)
    # The titles and details of a plan have no markup.
    marked = [block for block in made.blocks if block["type"] != "plan"]
    assert "<!channel>" not in "\n".join(texts(marked)) + made.text
    (inputs,) = [text for text in plain_texts(made.blocks) if text.startswith("service:")]
    assert inputs.endswith("…")
    assert len(inputs) < 120


def test_many_nodes_are_grouped() -> None:
    """Above 40 nodes what is done is a count; what failed, runs and comes next keeps its line."""
    flow = Flow(nodes=tuple(Node(f"n{n}") for n in range(200)))
    done = {f"n{n}": NodeRun(f"n{n}", "shell", n, "completed", T0, T1) for n in range(100)}
    running = NodeRun("n100", "shell", 100, "started", T0)
    state = session(phase="running", nodes=Map({**done, "n100": running}), active=Map({"n100": None}))
    lines = said(state, flow).splitlines()
    assert "✅ 100 done" in lines
    assert any(line.startswith("▶️ n100 · since") for line in lines)
    assert "▫️ n101" in lines
    assert "… 91 more to come" in lines
    assert lines[0] == "▶️ *Running* · step 101 of 200"


def test_more_steps_than_a_plan_takes_become_text() -> None:
    """Slack refuses a plan of more than fifty tasks, so that the card would never be seen."""
    flow = Flow(nodes=tuple(Node(f"n{n}") for n in range(70)))
    failed = {
        f"n{n}": NodeRun(f"n{n}", "shell", n, "failed", T0, T1, error={"type": "exit"}) for n in range(25)
    }
    running = {f"n{n}": NodeRun(f"n{n}", "shell", n, "started", T0) for n in range(25, 50)}
    done = {"n50": NodeRun("n50", "shell", 50, "completed", T0, T1)}
    begun = Map({**failed, **running, **done})
    state = session(phase="running", nodes=begun, active=Map(dict.fromkeys(running)))
    made = card(state, flow, T1)
    check_message(made.text, made.blocks, limit=4000)
    assert "… 5 more running" in said(state, flow)


@settings(max_examples=tries(60))
@given(sessions())
def test_any_card_fits(made_up: tuple[State, Flow]) -> None:
    """For any flow, state and text a card keeps Slack's limits, and an open one keeps its button."""
    state, flow = made_up
    made = card(state, flow, T1)
    check_message(made.text, made.blocks, limit=4000)
    assert size(made.blocks) <= MOST_UNITS
    assert bool(buttons(made.blocks)) == (state.phase in ("running", "waiting"))
    ended = end_note(state, flow, "end:1", by=BEN, reason="x", bot_user_id="U1")
    check_message(ended.text, ended.blocks, limit=4000)


def test_a_failure_says_what_was_not_done_and_what_one_can_do() -> None:
    """The note at a bad end names the node, the error and what was left, and has buttons to try or start again."""
    run = NodeRun("gate", "approval", 1, "failed", T0, T1, error={"message": "nobody answered"})
    state = session(outcome="failed", phase="ended", error=run.error, active=Map())
    state = replace(state, nodes=state.nodes.set("gate", run))
    made = end_note(state, FLOW, "end:1", bot_user_id="UBOT")
    assert made.text.splitlines() == ["❌ *rollback* failed at *Gate*: nobody answered", "*Not done:* Tell."]
    assert [(one["action_id"], one["value"]) for one in buttons(made.blocks)] == [
        (RETRY, state.session_id),
        (START, f"{state.flow_name}|{state.session_id}"),
    ]
    assert "<@UBOT> `rollback`" in made.plain


def test_a_failed_program_shows_its_last_lines() -> None:
    """They stand as code in which nothing counts; all of it is a file where there is more."""
    lines = "".join(f"line {number}\n" for number in range(40))
    error = {"message": "exit code 1", "details": {"stderr": f"{lines}``` <!channel>", "stdout": ""}}
    state = session(outcome="failed", phase="ended", error=error, active=Map())
    text = end_note(state, FLOW, "end:1").text
    assert "line 39" in text
    assert "line 2\n" not in text
    assert "''' &lt;!channel&gt;\n```" in text
    assert "`output.txt`, below" in text
    assert "line 0\n" in (log_of(state) or "")
    short = replace(state, error={"message": "exit code 1", "details": {"stderr": "no such host\n"}})
    assert "no such host" in end_note(short, FLOW, "end:1").text
    assert log_of(short) is None


def test_the_only_line_of_a_failed_program_is_said_once() -> None:
    """The message of the error ends with it, so no block repeats it."""
    error = {"message": "dig ended with exit code 1: no such host", "details": {"stderr": "no such host\n"}}
    state = session(outcome="failed", phase="ended", error=error, active=Map())
    assert end_note(state, FLOW, "end:1").text.count("no such host") == 1


def test_an_abort_says_by_whom() -> None:
    """Whoever ended a session is named, with the reason; what was running is said to be unknown, and one can start again."""
    run = NodeRun("plan", "shell", 0, "started", T0)
    state = session(
        outcome="aborted", phase="finalizing", nodes=Map({"plan": run}), active=Map({"plan": None})
    )
    made = end_note(state, FLOW, "end:1", by=BEN, reason="wrong <service>")
    lines = made.text.splitlines()
    assert lines[0] == "🛑 *rollback* was cancelled by <@U0LOCALBEN>: wrong &lt;service&gt;."
    assert lines[1] == "*Outcome unknown:* Plan."
    assert [one["action_id"] for one in buttons(made.blocks)] == [START]


REJECTED = {
    "type": "rejected",
    "message": "gate was rejected by ben: no",
    "by": [{"id": "U1", "name": "ben"}],
    "reason": "no",
}


def after_a_rejection(outcome: str) -> State:
    """A session whose approval was rejected, ended like this."""
    on = outcome == "complete"
    output = {"decision": "reject", **REJECTED} if on else None
    run = NodeRun(
        "gate",
        "approval",
        1,
        "completed" if on else "failed",
        T0,
        T1,
        output=output,
        error=None if on else REJECTED,
    )
    nodes = Map({"gate": run})
    return replace(
        session(), phase="ended", outcome=outcome, nodes=nodes, active=Map(), error=None if on else REJECTED
    )


def test_a_rejection_is_shown_as_a_decision_and_never_with_a_tick() -> None:
    """The first line names who rejected it, and the approval is marked as a decision, not as a failure."""
    told = said(after_a_rejection("failed"))
    assert "🚫 *Rejected by ben* after 3m 12s · 1 rejected · 2 not run\nNo\n" in told
    assert "🚫 Gate" in told
    assert "rejected by ben: no" in told.partition("🚫 Gate")[2]
    assert "✅" not in told
    assert "❌" not in told


def test_the_note_after_a_rejection_offers_to_ask_again_and_mends_nothing() -> None:
    """Nothing went wrong, so there is no failure to continue from before; what was not done is named."""
    ended = end_note(after_a_rejection("failed"), FLOW, "end:1", bot_user_id="UBOT")
    assert ended.text.splitlines() == ["🚫 *rollback* was rejected by ben: no", "*Not done:* Plan, Tell."]
    assert [one["action_id"] for one in buttons(ended.blocks)] == [START]


def test_a_rejection_after_which_it_went_on_has_no_tick_either() -> None:
    """With `on_reject: continue` the node completed; its line still says what was decided."""
    assert "🚫 Gate" in said(after_a_rejection("complete"))
    assert "✅ Gate" not in said(after_a_rejection("complete"))


def test_a_limit_that_it_went_on_at_is_named() -> None:
    """A session that completed at a limit does not look like one that was over."""
    reached = ({"path": "again", "to": None, "times": 3}, {"path": "test~4", "to": "fix", "times": 3})
    state = replace(after_a_rejection("complete"), limits=reached)
    assert "🔁 Continued past a limit: again after 3 rounds, test → fix after 3 times" in "\n".join(
        texts(card(state, FLOW, T1).blocks) + plain_texts(card(state, FLOW, T1).blocks)
    )


def test_home_shows_a_rejection_as_a_decision() -> None:
    """Among what ended lately it has the sign and the words of a decision."""
    page = HomePage([], [], [Run(after_a_rejection("failed"), None)], {}, T1)
    told = "\n".join(texts(home_view(page)["blocks"]))
    assert "🚫 *rollback* · rejected by ben <!date^" in told
    assert ">: no\nstarted by" in told
    assert "❌" not in told


def test_a_question_at_a_limit_says_what_it_is() -> None:
    """Its message has a head of its own, and a button for each way to continue."""
    asked = prompt(
        kind="limit", message="*a* has not finished, and the 2 rounds are used up.", accepts_text=False
    )
    made = question_message(session(asked), asked, FLOW)
    assert "🔁 *Limit reached:*" in "\n".join(texts(made.blocks))


def test_a_card_leads_to_the_control_room_where_there_is_one() -> None:
    """With SAYSO_WEB_URL the line about the start has a link to the page of the run."""
    link = "<https://sayso.example.com/sessions/session-1|Open in the control room>"
    made = card(session(), FLOW, T1, room="https://sayso.example.com/")
    [line] = [text for text in texts(made.blocks) if "Started by" in text]
    assert line.endswith(link)
