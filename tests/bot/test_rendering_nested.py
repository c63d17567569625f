"""What is inside containers, as people see it: on the card, in questions, and at the end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bot.rendering import phrases
from bot.rendering.blocks import MOST_UNITS, size
from bot.rendering.prompts import question_message
from bot.workspace.blocks import check_message
from engine.decide.commands import Hold, NodeBroke, NodeDone, Resume
from engine.language import timestamps
from prompt_state.question_row import prompt_state
from tests.bot.rendering_cases import buttons, card, end_note, texts
from tests.engine.agents.talks import Talk
from tests.engine.walks import Walk, walks
from tests.support.engine import ANA, BEN, Scenario, flow_of
from tests.support.proving import tries

ROLLOUT = """
- {id: plan, type: noop, name: Plan}
- id: rollout
  type: foreach
  name: Rollout
  with: {items: %s, as: region, concurrency: %d}
  body:
    - {id: apply, type: shell, name: Apply, with: {run: ["true"]}, retry: {attempts: 3, delay: 60s}}
    - {id: confirm, type: ask, name: Confirm, with: {message: "How does {{ region }} look?"}}
- {id: tell, type: noop, name: Tell}
"""
THREAD = {"team": "T1", "channel": "C1", "threadTs": "1.0", "key": "T1:C1:1.0"}


def rollout(items: str = "[eu, us, ap]", concurrency: int = 1) -> Scenario:
    """A started rollout."""
    return Scenario(flow_of("nodes:" + (ROLLOUT % (items, concurrency)).replace("\n", "\n  "))).started()


def applied(case: Scenario, index: int, output: bool = True) -> Scenario:
    """`apply` of one pass worked, or did not."""
    path = f"rollout[{index}]/apply"
    attempt = case.node(path).attempt
    if not output:
        return case.when(NodeBroke(path, attempt, {"type": "shell", "message": "exit code 1"}))
    return case.when(NodeDone(path, attempt, {"stdout": "", "stderr": "", "exit_code": 0}))


def lines(case: Scenario) -> list[str]:
    """The mrkdwn lines of a card."""
    return "\n".join(texts(card(case.state, case.flow, case.now).blocks)).splitlines()


def test_one_pass_is_shown_with_its_nodes_below_its_container() -> None:
    """The container says how far it is and with what, and the nodes of the pass stand indented below it."""
    case = applied(rollout(), 0)
    case.when(case.answer(text="fine"))
    said = lines(applied(case, 1))
    start = said.index("▶️ Rollout · 2 of 3 · us")
    assert said[start + 1].startswith("✅ › Apply")
    assert said[start + 2].startswith("› 🟡 Confirm · waiting for ")
    assert said[start + 3] == "▫️ Tell"
    assert said[0].endswith("· Rollout › us › Confirm")


def test_several_passes_have_one_line_each_with_those_that_wait_for_people_first() -> None:
    """Side by side each pass says what it does, named by its item; what has ended is counted."""
    case = applied(rollout(concurrency=3), 1)
    said = lines(case)
    start = said.index("▶️ Rollout · 3 of 3 · 0 done")
    assert said[start + 1].startswith("› 🟡 us › Confirm · waiting for ")
    assert [line.split(" · ")[0] for line in said[start + 2 : start + 4]] == [
        "▶️ › eu › Apply",
        "▶️ › ap › Apply",
    ]


def test_a_retry_says_which_try_comes_and_when() -> None:
    """A node that waits for its next try says which one of how many, when, and what went wrong."""
    case = applied(rollout(), 0, output=False)
    (line,) = [line for line in lines(case) if "🔁" in line]
    assert line.startswith("› 🔁 Apply · try 2 of 3 at 2026-")
    assert line.endswith("· exit code 1")
    assert lines(case)[0].startswith("🟡 *Waiting*, next try: <!date^")


def test_two_parallel_questions_can_be_told_apart() -> None:
    """Each question names its item in its first line, in its notification, and in the answer to `status`."""
    case = rollout(concurrency=2)
    applied(applied(case, 0), 1)
    found = sorted((case.state.prompts[key] for key in case.state.open_prompts), key=lambda p: p.path)
    leads = [question_message(case.state, prompt, case.flow).text.splitlines()[0] for prompt in found]
    assert [lead.rpartition(" · ")[2] for lead in leads] == ["*Rollout › eu*", "*Rollout › us*"]
    status = phrases.status_text([(case.state, case.flow)], case.now)
    assert "Rollout › eu › Confirm: How does eu look?" in status
    assert status.endswith("Rollout › us › Confirm: How does us look?")


def test_calls_of_two_agents_that_wait_can_be_told_apart() -> None:
    """A call that people decide before it begins names the pass that it belongs to, as a question does."""
    flow = """
nodes:
  - id: each
    type: foreach
    with: {items: [eu, us], concurrency: 2}
    body:
      - {id: fix, type: agent, with: {prompt: x, tools: [write_file], approvals: {write_file: [approve, reject]}}}
"""
    case = Talk(flow_of(flow)).started()
    for path in sorted(case.state.launched):
        use = {
            "type": "tool_use",
            "id": f"toolu_{path[5]}",
            "name": "write_file",
            "input": {"path": "a", "content": "b"},
        }
        output = {"content": [use], "stopReason": "tool_use", "usage": {}, "model": "m", "interrupted": False}
        case.when(NodeDone(path, 1, output))
    status = phrases.status_text([(case.state, case.flow)], case.now)
    assert "each › eu › fix: write_file" in status
    assert "each › us › fix: write_file" in status


def test_a_held_session_says_that_it_is_paused_and_by_whom() -> None:
    """The card and `status` say paused, by whom, and what is still asked; the session can still be cancelled."""
    case = applied(rollout(), 0).when(Hold(ANA, phrases.by(ANA)))
    assert lines(case)[0] == "⏸️ *Paused* · by ana · 1 open question"
    assert "is paused by ana (`resume` continues it)" in phrases.status_text(
        [(case.state, case.flow)], case.now
    )
    assert buttons(card(case.state, case.flow, case.now).blocks)
    case.when(Resume("resume", ANA, "key-r"))
    assert lines(case)[0].startswith("🟡 *Waiting*")


def test_the_note_at_the_end_says_what_was_not_done_inside() -> None:
    """An abort in the second of three passes names the node that had not begun and counts the passes."""
    case = applied(rollout(), 0)
    case.when(case.answer(text="fine"))
    case.when(case.abort(BEN))
    said = end_note(case.state, case.flow, "end:1").text.splitlines()
    assert "*Outcome unknown:* Rollout › us › Apply." in said
    assert "*Not done:* Rollout › us › Confirm, 1 of the 3 passes of Rollout, Tell." in said


def test_a_failure_inside_says_where() -> None:
    """The note of a failure names the node inside, and what its container and the flow did not get to."""
    case = rollout()
    for _ in range(3):
        applied(case, 0, output=False)
        if case.state.timers:
            case.later(61).when(case.timer_due())
    said = end_note(case.state, case.flow, "end:1").text.splitlines()
    assert said[0] == "❌ *demo* failed at *Rollout › eu › Apply*: exit code 1"
    assert said[1] == "*Not done:* the rest of Rollout, Tell."


def test_a_loop_that_failed_says_at_which_item_and_which_were_done() -> None:
    """The card's line of the loop names the item, and those whose passes were done, when the loop has ended."""
    case = applied(rollout(), 0)
    case.when(case.answer(text="fine"))
    for _ in range(3):
        applied(case, 1, output=False)
        if case.state.timers:
            case.later(61).when(case.timer_due())
    assert case.state.ended
    line = next(line for line in lines(case) if line.startswith("❌ Rollout"))
    assert "failed at us" in line
    assert "1 of 3 done (eu)" in line


def test_a_hundred_passes_make_no_longer_card_than_a_few() -> None:
    """What has ended is counted: the card of the fiftieth pass is as long as that of the first."""
    case = rollout(str(list(range(100))))
    first = len(lines(case))
    for index in range(49):
        applied(case, index)
        case.when(case.answer(text="fine"))
    assert "▶️ Rollout · 50 of 100 · 49" in lines(case)
    assert len(lines(case)) == first


@pytest.mark.parametrize(
    ("nodes", "place"),
    [
        ("{id: fan, type: parallel, branches: {left: [ASK], right: [{id: n, type: noop}]}}", "fan › left › q"),
        ("{id: pick, type: switch, with: {on: '3'}, cases: {'3': [ASK]}}", "pick › 3 › q"),
        ("{id: pick, type: switch, with: {on: x}, cases: {'3': [{id: n, type: noop}]}, default: [ASK]}",
         "pick › default › q"),
        ("{id: again, type: loop, with: {until: '{{ index > 3 }}', max_iterations: 9}, body: [ASK]}", "again › 1 › q"),
        ("{id: each, type: foreach, with: {items: [{host: db1}]}, body: [ASK]}", "each › db1 › q"),
        ("{id: no, type: fail, with: {message: x}, on_failure: [ASK]}", "no › after its failure › q"),
        ("{id: each, type: foreach, with: {items: ['<!here>']}, body: [ASK]}", "each › &lt;!here&gt; › q"),
    ],
)  # fmt: skip
def test_a_place_is_named_as_people_would(nodes: str, place: str) -> None:
    """Branches and cases by their names, items by what they are called, rounds by their number; all of it inert."""
    text = "nodes:\n  - " + nodes.replace("ASK", "{id: q, type: ask, with: {message: Well}}")
    case = Scenario(flow_of(text)).started()
    said = texts(question_message(case.state, case.prompt, case.flow).blocks)[-1]
    assert said.endswith(f"demo › {place}")


def test_a_closed_question_is_named_from_its_row() -> None:
    """Whoever comes too late reads who answered it, when, and what."""
    case = applied(rollout(), 0)
    before = case.prompt.prompt_id
    case.when(case.answer(text="fine"))
    prompt = case.state.prompts[before]
    row = prompt_state(replace(case.state, thread=THREAD), prompt)
    assert phrases.closed_text(row) == f"Already answered by ana at {timestamps.told(prompt.at)}: fine."


@settings(max_examples=tries(60))
@given(walks(), st.booleans())
def test_whatever_a_flow_does_its_card_questions_and_end_fit(walk: Walk, ending: bool) -> None:
    """For flows with containers in containers, wherever they stand, every message keeps Slack's limits."""
    case = walk.case
    made = card(case.state, case.flow, case.now)
    check_message(made.text, made.blocks, limit=4000)
    assert size(made.blocks) <= MOST_UNITS
    for prompt in case.state.prompts.values():
        shown = question_message(case.state, prompt, case.flow)
        check_message(shown.text, shown.blocks, limit=4000)
    if ending and case.state.phase in ("running", "waiting", "held"):
        case.when(case.abort())
    note = end_note(case.state, case.flow, "end:1")
    check_message(note.text, note.blocks, limit=4000)
