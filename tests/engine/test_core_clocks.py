"""The clocks of questions: reminders, escalation, working hours, and where a timeout leads."""

from __future__ import annotations

import pytest

from engine.decide.commands import Answer, Due, Gone, Hold, NodeDone, Reachable, Resume, Shown, Unreachable
from engine.flow.load import load_flow
from engine.journal.snapshot import from_bytes, to_bytes
from engine.language.errors import FlowError, PromptClosed
from engine.nodes.types.registry import node_types
from engine.nodes.types.spec import InvalidConfig
from tests.support.engine import ANA, BEN, Scenario, given

MINUTE, HOUR = 60.0, 3600.0


def asked(extra: str, kind: str = "ask") -> Scenario:
    """A session whose question with these clocks is in front of people."""
    who = ", approvers: [channel]" if kind == "approval" else ""
    case = given(f"nodes:\n  - {{id: q, type: {kind}, with: {{message: Go?{who}, {extra}}}}}").started()
    return case.when(case.shown())


def timer(case: Scenario, word: str) -> Due:
    """The timer of the open prompt with this name, set or not."""
    return Due(f"{case.state.session_id}:{case.prompt.prompt_id}:{word}")


def due_at(case: Scenario, word: str) -> str:
    """When a timer of the open prompt is due."""
    return case.state.timers[timer(case, word).timer_id].due_at


CLOCKS = (
    "timeout: 1h, remind_every: 10m, escalate: [{after: 15m, to: ['@leads']}, {after: 30m, to: [dm:U0BEN]}]"
)


def test_all_clocks_start_when_the_question_is_shown() -> None:
    """No clock starts before people can see the question."""
    case = given(f"nodes:\n  - {{id: q, type: ask, with: {{message: Go?, {CLOCKS}}}}}").started()
    assert not case.state.timers
    case.later(600).when(case.shown())
    case.then("prompt:shown", "timer:set", "timer:set", "timer:set", "timer:set")
    assert case.prompt.deadline == due_at(case, "deadline") == "2026-11-21T10:10:00.000Z"
    assert due_at(case, "remind") == "2026-11-21T09:20:00.000Z"
    assert [due_at(case, f"escalate{n}")[11:16] for n in (0, 1)] == ["09:25", "09:40"]


def test_a_question_that_is_shown_elsewhere_keeps_its_clocks() -> None:
    """Only the first time that it is shown starts anything."""
    case = asked(CLOCKS).later(300)
    before = case.state.timers
    case.when(case.shown()).then()
    case.when(case.shown(channel="C1", ts="9.9")).then("prompt:shown")
    assert case.prompt.shown == {"channel": "C1", "ts": "9.9"}
    assert case.state.timers is before


def test_reminders_are_counted_and_go_on() -> None:
    """Each reminder says its number and sets the next one; the session continues waiting."""
    case = asked("remind_every: 10m, timeout: 1h")
    for count in (1, 2, 3):
        case.later(10 * MINUTE).when(timer(case, "remind"))
        case.then("timer:fired", "prompt:reminded", "timer:set")
        assert case.event("prompt:reminded").count == count == case.prompt.reminders
    assert case.state.phase == "waiting"


def test_after_a_long_silence_there_is_one_reminder() -> None:
    """Five that came due while the process was down are one, and the next is a whole time later."""
    case = asked("remind_every: 10m").later(55 * MINUTE)
    case.when(timer(case, "remind")).then("timer:fired", "prompt:reminded", "timer:set")
    assert due_at(case, "remind") == "2026-11-21T10:05:00.000Z"
    case.when(timer(case, "remind")).then()


def test_the_deadline_wins_over_what_is_due_with_it() -> None:
    """Whichever timer is noticed first: a question whose time is over reminds nobody and tells nobody."""
    for word in ("remind", "escalate0", "escalate1", "deadline"):
        case = asked(CLOCKS).later(2 * HOUR)
        case.when(timer(case, word))
        assert "prompt:expired" in [event.type for event in case.last]
        assert not {"prompt:reminded", "prompt:escalated"} & {event.type for event in case.last}
        assert not case.state.timers


def test_overdue_steps_are_taken_each_once_and_in_order() -> None:
    """After downtime across two steps and a reminder, both steps run in order, then the reminder."""
    for word in ("escalate1", "remind", "escalate0"):
        case = asked(CLOCKS).later(50 * MINUTE)
        case.when(timer(case, word))
        told = [event.type for event in case.last if event.type.startswith("prompt:")]
        assert told == ["prompt:escalated", "prompt:escalated", "prompt:reminded"]
        assert [event.step for event in case.last if event.type == "prompt:escalated"] == [0, 1]
        case.when(*(timer(case, late) for late in ("escalate0", "escalate1", "remind"))).then()


def test_an_answer_stops_every_clock() -> None:
    """Nothing is set after it, and timers of before change nothing."""
    case = asked(CLOCKS)
    late = [timer(case, word) for word in ("deadline", "remind", "escalate0")]
    case.when(case.answer(text="yes"))
    assert not case.state.timers
    case.later(HOUR * 24).when(*late).then()


def test_a_clock_that_is_put_back_does_nothing_twice() -> None:
    """After the clock jumps back, no timer fires again, and future timers wait for their time."""
    case = asked("remind_every: 10m").later(10 * MINUTE)
    case.when(timer(case, "remind"))
    case.later(-HOUR).when(timer(case, "remind")).then()
    case.later(HOUR + 9 * MINUTE).when(timer(case, "remind")).then()
    case.later(MINUTE).when(timer(case, "remind"))
    assert case.prompt.reminders == 2


def test_an_escalation_may_let_others_answer() -> None:
    """With `may_answer` the people and groups of a step may answer from then on; a channel cannot."""
    to = "to: ['@leads', '#C0OPS', 'dm:ben@example.com', U0CY]"
    case = asked(f"escalate: [{{after: 15m, {to}, may_answer: true}}]", "approval").later(15 * MINUTE)
    case.when(timer(case, "escalate0"))
    assert case.event("prompt:escalated").to == ["@leads", "C0OPS", "dm:ben@example.com", "U0CY"]
    assert case.prompt.approvers == ("channel", "@leads", "ben@example.com", "U0CY")


def test_who_was_asked_may_still_answer_after_an_escalation() -> None:
    """An `ask` without `who` is the requester's; others come beside them."""
    case = asked("escalate: [{after: 15m, to: U0BEN, may_answer: true}]").later(15 * MINUTE)
    case.when(timer(case, "escalate0"))
    assert case.prompt.who == ("requester", "U0BEN")


def test_without_may_answer_others_are_only_told() -> None:
    """An escalation alone widens nothing."""
    case = asked("escalate: [{after: 15m, to: U0BEN}]", "approval").later(15 * MINUTE)
    case.when(timer(case, "escalate0"))
    assert case.prompt.approvers == ("channel",)
    assert case.prompt.escalated == (0,)


def test_while_a_node_is_let_finish_for_a_pause_nobody_is_told() -> None:
    """A pause that waits for what runs is as quiet as the pause itself; the step is taken when the session continues."""
    clocks = "remind_every: 10m, escalate: [{after: 15m, to: U0BEN}]"
    ask = f"[{{id: q, type: ask, with: {{message: Go?, {clocks}}}}}]"
    run = "[{id: a, type: shell, with: {run: [sleep]}}]"
    case = given(f"nodes: [{{id: p, type: parallel, branches: {{l: {run}, r: {ask}}}}}]").started()
    case.when(case.shown(), Hold(ANA, "lunch", waits=True)).later(20 * MINUTE)
    assert case.state.phase == "pausing"
    case.when(*(Due(timer_id) for timer_id in case.state.timers))
    case.then("timer:fired", "timer:fired", "timer:set")
    (shell,) = (path for path, node in case.state.nodes.items() if node.type == "shell")
    case.when(NodeDone(shell, 1, {"stdout": "", "stderr": "", "exit_code": 0, "seconds": 0.0}))
    assert case.state.phase == "held"
    case.when(Resume("on", ANA, "key-r"))
    assert case.event("prompt:escalated").step == 0
    assert case.prompt.reminders == 0


def test_while_held_nobody_is_told_and_the_steps_come_afterwards() -> None:
    """Held, a reminder is put off and a step is recorded; when the session continues, the step is taken, once."""
    case = asked("remind_every: 10m, escalate: [{after: 15m, to: U0BEN}]")
    case.when(Hold(ANA)).later(20 * MINUTE)
    case.when(timer(case, "remind"))
    case.then("timer:fired", "timer:fired", "timer:set")
    assert case.prompt.reminders == 0
    case.when(Resume("on", ANA, "key-r"))
    assert [event.type for event in case.last][:2] == ["flow:resumed", "prompt:escalated"]
    assert case.prompt.escalated == (0,)
    case.when(Hold(ANA), Resume("on", ANA, "key-s"))
    assert "prompt:escalated" not in [event.type for event in case.last]


def test_a_deadline_while_held_is_recorded_and_starts_nothing() -> None:
    """The time is over all the same; what follows waits for the resume."""
    flow = """
nodes:
  - {id: q, type: ask, with: {message: Go?, timeout: 10m, on_timeout: default, default: no}}
  - {id: b, type: set, with: {why: "{{ nodes.q.text }}"}}
"""
    case = given(flow.replace("default: no}", 'default: "no"}')).started()
    case.when(case.shown()).when(Hold(ANA)).later(600).when(timer(case, "deadline"))
    case.then("timer:fired", "prompt:expired", "node:completed")
    case.when(Resume("on", ANA, "key-r"))
    assert case.node("b").output == {"why": "no"}


def test_clocks_count_working_time_only() -> None:
    """Asked on a Saturday, every clock starts to count on Monday morning."""
    hours = "hours: {timezone: Europe/Berlin}"
    case = asked(f"timeout: 9h, remind_every: 1h, escalate: [{{after: 8h, to: U0BEN}}], {hours}")
    assert due_at(case, "remind") == "2026-11-23T09:00:00.000Z"
    assert due_at(case, "escalate0") == "2026-11-23T16:00:00.000Z"
    assert due_at(case, "deadline") == "2026-11-24T09:00:00.000Z"


def test_the_flows_own_limit_is_for_the_calendar() -> None:
    """A question without a `timeout` ends after `limits.deadline`, weekends or not."""
    case = asked("remind_every: 1h, hours: {timezone: Europe/Berlin}")
    assert case.prompt.deadline == "2026-12-21T09:00:00.000Z"


# --- goto --------------------------------------------------------------------------------------------------

GOTO = """
nodes:
  - {id: q, type: ask, with: {message: Go?, timeout: 10m, on_timeout: "goto:late"}}
  - {id: go, type: set, with: {said: "{{ nodes.q.text }}"}}
  - {id: late, type: set, with: {why: "{{ errors.q.type if errors.q else 'none' }}"}}
"""


def test_a_timeout_may_lead_elsewhere() -> None:
    """`on_timeout: goto:<id>` continues there, and what lies between never runs."""
    case = given(GOTO).started()
    case.when(case.shown()).later(600).when(timer(case, "deadline"))
    assert case.event("prompt:expired").outcome == "goto:late"
    assert case.event("node:error").goto == "late"
    assert case.node("late").output == {"why": "timeout"}
    assert "go" not in case.state.nodes
    assert case.state.status == "complete"


def test_a_timeout_may_lead_back_to_ask_again() -> None:
    """A jump back asks once more, as another visit with clocks of its own."""
    case = given(
        "nodes:\n  - {id: q, type: ask, with: {message: Go?, timeout: 10m, on_timeout: 'goto:q'}}"
    ).started()
    case.when(case.shown()).later(600).when(timer(case, "deadline"))
    assert case.prompt.path == "q~2"
    case.when(case.shown(), case.answer(text="at last"))
    assert case.node("q~2").output["text"] == "at last"


def test_a_timeout_leads_elsewhere_inside_a_container() -> None:
    """A jump stays in the pass in which nobody answered; the other passes do not see it."""
    flow = """
nodes:
  - id: each
    type: foreach
    with: {items: [1, 2], as: n, concurrency: 2}
    body:
      - {id: q, type: ask, with: {message: "{{ n }}?", timeout: 10m, on_timeout: "goto:late"}}
      - {id: go, type: set, with: {said: "{{ nodes.q.text }}"}}
      - {id: late, type: set, with: {n: "{{ n }}"}}
"""
    case = given(flow).started()
    first, second = (
        case.state.prompts[key]
        for key in sorted(case.state.open_prompts, key=lambda k: case.state.prompts[k].path)
    )
    case.when(Shown(first.prompt_id, {"ts": "1"}), Shown(second.prompt_id, {"ts": "2"})).later(599)
    case.when(Answer(second.prompt_id, ANA, "k", text="fine"))
    case.later(1).when(Due(f"{case.state.session_id}:{first.prompt_id}:deadline"))
    outputs = [one["outputs"] for one in case.node("each").output["iterations"]]
    assert [sorted(one) for one in outputs] == [["late", "q"], ["go", "late", "q"]]


def test_a_timeout_leads_elsewhere_in_a_graph() -> None:
    """In a graph the jump opens its target, and no edge that leaves the question is taken."""
    flow = """
nodes:
  - {id: a, type: set, with: {x: 1}}
  - {id: q, type: ask, with: {message: Go?, timeout: 10m, on_timeout: "goto:a"}}
  - {id: b, type: set, with: {said: "{{ nodes.q.text }}"}}
edges: [{from: a, to: q}, {from: q, to: b}]
"""
    case = given(flow).started()
    case.when(case.shown()).later(600).when(timer(case, "deadline"))
    assert case.prompt.path == "q~2"
    assert case.node("b").status == "skipped"
    case.when(case.answer(text="yes"))
    assert case.node("b~2").output == {"said": "yes"}


# --- flows that do not load --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ("timeout: 1h, on_timeout: 'goto:nowhere'", "there is no node `nowhere` in this list"),
        ("timeout: 1h, on_timeout: aprove", "expected fail, default or goto:<id>"),
        ('timeout: 1h, on_timeout: "{{ inputs.x }}"', "`on_timeout` cannot contain expressions"),
        ("remind_every: 10s", "a minute or more"),
        ("escalate: [{after: 15m, to: [nobody]}]", "does not name a person"),
        ("escalate: [{after: 15m, to: ['dm:@sre']}]", "is not one person"),
        ("escalate: [{after: 2h, to: [U0BEN]}], timeout: 1h", "the `timeout` is sooner"),
        ("remind_every: 2h, timeout: 1h", "the `timeout` is sooner"),
        ("escalate: [{to: [U0BEN]}]", "`after` is missing"),
        ("hours: {timezone: UTC}", "`hours` are for"),
        ("timeout: 1h, hours: {timezone: Mars/Olympus}", "is not a time zone"),
        ("timeout: 1h, hours: {timezone: UTC, from: '9:00'}", "not a time of day"),
        ("timeout: 1h, hours: {timezone: UTC, days: [monday]}", "expected mon, tue"),
        ("timeout: 1h, hours: {timezone: UTC, from: '09:00', to: '09:00'}", "it ends at its start"),
    ],
)
def test_clocks_that_cannot_be_meant_do_not_load(extra: str, told: str) -> None:
    """Each slip is named where the flow is read, and not when the question is asked."""
    text = f"flow: demo\ninputs: {{x: {{}}}}\nnodes:\n  - {{id: q, type: ask, with: {{message: Go?, {extra}}}}}\n"
    with pytest.raises(FlowError) as refused:
        load_flow(text, "flow.yml")
    assert told in str(refused.value)


def test_a_jump_stays_in_its_list() -> None:
    """A timeout cannot lead out of a body."""
    text = """flow: demo
nodes:
  - id: each
    type: foreach
    with: {items: [1]}
    body:
      - {id: q, type: ask, with: {message: Go?, timeout: 10m, on_timeout: "goto:late"}}
  - {id: late, type: noop}
"""
    with pytest.raises(FlowError, match="a jump cannot leave its list"):
        load_flow(text, "flow.yml")


def test_an_evaluated_target_is_checked_too() -> None:
    """What an expression makes of `to` must name somebody."""
    spec = node_types()["ask"]
    with pytest.raises(InvalidConfig, match="does not name a person"):
        spec.validate({"message": "Go?", "escalate": [{"after": "15m", "to": ["the boss"]}]})


# --- gone and out of reach ---------------------------------------------------------------------------------


def test_a_question_whose_message_was_deleted_is_asked_again_three_times() -> None:
    """Each copy has a nonce of its own, the clocks continue, and after three copies it stays as it is."""
    case = asked("timeout: 1h")
    deadline, nonces = case.prompt.deadline, {case.prompt.nonce}
    for copy in (1, 2, 3):
        case.when(Gone(case.prompt.prompt_id, case.prompt.shown["ts"])).then("prompt:reposted")  # type: ignore[index]
        assert case.prompt.status == "requested"
        nonces.add(case.prompt.nonce)
        case.later(60).when(case.shown(channel="C1", ts=f"2.{copy}")).then("prompt:shown")
    assert len(nonces) == 4
    assert case.prompt.deadline == deadline
    case.when(Gone(case.prompt.prompt_id, "2.3")).then()


def test_a_button_of_a_deleted_copy_is_too_old() -> None:
    """The person who presses it is told so, and nothing is answered."""
    case = asked("timeout: 1h", "approval")
    old = case.answer("approve", nonce=case.prompt.nonce)
    case.when(Gone(case.prompt.prompt_id, "1.3"))
    assert "older copy" in case.refused(old, PromptClosed)


def test_only_the_message_that_shows_it_counts_as_gone() -> None:
    """A deletion of another message, or one that is told twice, changes nothing."""
    case = asked("timeout: 1h")
    case.when(Gone(case.prompt.prompt_id, "7.7")).then()
    case.when(Gone(case.prompt.prompt_id, "1.3"), Gone(case.prompt.prompt_id, "1.3")).then("prompt:reposted")


FOLLOWED = """
nodes:
  - {id: q, type: ask, with: {message: Go?, timeout: 1h, escalate: [{after: 10m, to: U0BEN}]}}
  - {id: b, type: set, with: {said: "{{ nodes.q.text }}"}}
finally:
  - {id: tidy, type: set, with: {x: 1}}
"""


def test_out_of_reach_nothing_starts_until_it_is_reached_again() -> None:
    """An answer is recorded; what follows it waits until the thread can be posted in."""
    case = given(FOLLOWED).started()
    case.when(case.shown()).when(Unreachable("is_archived")).then("session:unreachable", "timer:set")
    assert (case.state.phase, case.state.status, case.state.pause_reason) == (
        "unreachable",
        "paused",
        "is_archived",
    )
    case.when(Unreachable("is_archived")).then()
    case.when(case.answer(text="yes")).then("prompt:answered", "node:completed")
    case.when(Reachable())
    assert case.last[0].type == "session:reachable"
    assert case.node("b").output == {"said": "yes"}
    assert case.state.status == "complete"
    case.when(Reachable()).then()


def test_out_of_reach_nobody_is_told_and_the_steps_come_afterwards() -> None:
    """A step that came due is taken once the thread is back."""
    case = given(FOLLOWED).started()
    case.when(case.shown()).when(Unreachable("is_archived")).later(20 * MINUTE)
    case.when(timer(case, "escalate0")).then("timer:fired")
    case.when(Reachable()).then("session:reachable", "prompt:escalated", "flow:paused")


def test_out_of_reach_a_deadline_fails_it_and_what_is_at_the_end_runs() -> None:
    """Nobody could answer: the question fails, and the session with it."""
    case = given(FOLLOWED).started()
    case.when(case.shown()).when(Unreachable("is_archived")).later(2 * HOUR).when(timer(case, "deadline"))
    assert case.state.status == "failed"
    assert case.node("finally/tidy").status == "completed"


def test_out_of_reach_has_a_deadline_of_its_own() -> None:
    """A session whose question was never shown fails after `limits.deadline`, and says why."""
    case = given(FOLLOWED + "limits: {deadline: 2d}\n").started()
    case.when(Unreachable("not_in_channel")).later(2 * 24 * HOUR).when(case.timer_due())
    assert case.state.status == "failed"
    assert case.state.error == {
        "type": "unreachable",
        "message": "the thread could not be reached before the deadline (not_in_channel)",
    }


def test_out_of_reach_before_it_began_nothing_is_cleaned_up() -> None:
    """A session whose inputs nobody gave has done nothing: it fails without what its flow has at the end."""
    case = given("inputs: {a: {type: string}}\n" + FOLLOWED).started()
    case.when(Unreachable("is_archived")).later(HOUR * 24 * 366).when(case.timer_due())
    assert case.state.status == "failed"
    assert "flow:finalizing" not in [event.type for event in case.events]


def test_what_is_held_or_over_does_not_become_unreachable() -> None:
    """A person's pause stays a pause, and an end an end."""
    case = asked("timeout: 1h").when(Hold(ANA))
    case.when(Unreachable("is_archived")).then()
    case.when(case.abort(BEN), Unreachable("is_archived"))
    assert case.state.status == "aborted"


def test_all_of_it_survives_a_snapshot() -> None:
    """Counts, steps and the phase are what they were after the state was stored and read."""
    case = asked(CLOCKS).later(20 * MINUTE)
    case.when(timer(case, "remind")).when(Unreachable("is_archived"))
    assert from_bytes(to_bytes(case.state)) == case.state
    assert case.prompt.escalated == (0,)


def test_a_fork_starts_its_clocks_anew_and_is_not_out_of_reach() -> None:
    """What was set, told or out of reach belongs to the session that it comes from."""
    case = asked(CLOCKS).later(20 * MINUTE)
    case.when(timer(case, "remind")).when(Unreachable("is_archived"))
    forked = case.forked().state
    (prompt,) = forked.prompts.values()
    assert (prompt.status, prompt.reminders, prompt.escalated, prompt.deadline) == ("requested", 0, (), None)
    assert (forked.phase, len(forked.timers)) == ("running", 0)
