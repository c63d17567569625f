"""A conversation in what shows and moves sessions: the tree, a new text of the flow, a fork."""

from __future__ import annotations

import pytest

from engine.decide.commands import NodeCut, NodeDone, Steer
from engine.decide.past import Past, plan
from engine.flow import Flow
from engine.flow.load import load_flow
from engine.journal.history import Entry, marks, tree
from engine.language.errors import SessionEnded
from tests.bot.rendering_cases import end_note
from tests.engine.agents.talks import DONE, SERVICE, Talk, talk
from tests.support.engine import BEN, flow_of

TOOLS = """tools:
  - shell: {commands: ["*"]}
  - read_file
  - ask_human
approvals: {shell: [approve, reject]}"""
CALLS = (("shell", {"command": "uptime"}), ("read_file", {"path": "a.txt"}))


def under_way() -> Talk:
    """A conversation in which one call waits for people, and another has its result."""
    return talk(TOOLS).model("Let me see.", *CALLS).tool("tool[1]", {"text": "x", "path": "a.txt"})


def drawn(case: Talk, at: int | None = None) -> list[str]:
    """Every line of the tree as `path name status`."""
    root = tree(case.events[:at], case.flow)
    return [f"{entry.path} {entry.name} {entry.status}" for entry in root.walk()][1:]


def test_model_calls_and_their_tools_stand_in_the_tree_below_the_agent() -> None:
    """Each model call with its tool calls, by the names that the model has for them; what waits for people waits."""
    case = under_way()
    assert drawn(case) == [
        "helper helper started",
        "helper/turn[1] turn[1] completed",
        "helper/turn[1]/tool[0] shell waiting",
        "helper/turn[1]/tool[1] read_file completed",
    ]
    case.decide("reject").model("It is fine.")
    assert drawn(case) == [
        "helper helper completed",
        "helper/turn[1] turn[1] completed",
        "helper/turn[1]/tool[0] shell failed",
        "helper/turn[1]/tool[1] read_file completed",
        "helper/turn[2] turn[2] completed",
    ]
    found = {entry.path: entry for entry in tree(case.events, case.flow).walk()}
    assert found["helper/turn[2]"].output == "It is fine."
    assert found["helper/turn[1]/tool[0]"].type == "tool"
    assert found["helper/turn[1]/tool[1]"].type == "read_file"


def test_a_second_attempt_of_an_agent_stands_beside_the_first() -> None:
    """An agent that people try again has the model calls of both attempts in the tree."""
    case = talk(rest="    on_error: ask\n    timeout: 1h\n").due("timeout")
    case.when(NodeCut(case.calling, 1, "cut")).decide("retry")
    assert drawn(case)[-1] == "helper#2/turn[1] turn[1] started"


def test_the_tree_of_a_conversation_can_be_drawn_after_every_event() -> None:
    """Every beginning of its journal gives a tree, and no synthetic node is among what has not begun."""
    case = under_way().decide("approve").tool("tool[0]", DONE)
    case.model("It is up.")
    for at in range(1, len(case.events) + 1):
        names: list[Entry] = list(tree(case.events[:at], case.flow).walk())
        assert not [entry.name for entry in names if "." in entry.name]
    assert marks(tree(case.events, case.flow)) == {("", "helper"): "completed"}


def test_an_agent_waits_in_a_drawing_while_one_of_its_calls_does() -> None:
    """Its calls are drawn nowhere, so its own mark says that people are asked."""
    case = under_way()
    assert marks(tree(case.events, case.flow)) == {("", "helper"): "waiting"}
    case.decide("approve")
    assert marks(tree(case.events, case.flow)) == {("", "helper"): "started"}


# --- forks -----------------------------------------------------------------------------------------------------


def whole() -> Talk:
    """A conversation with two calls at once, an approval, a question, somebody who speaks, and its end."""
    case = talk(TOOLS).model("Let me see.", *CALLS)
    case.when(Steer("Look at db-2, too.", BEN, "key-steer"))
    case.tool("tool[1]", {"text": "x", "path": "a.txt"})
    case.decide("approve").tool("tool[0]", DONE)
    case.model("", ("ask_human", {"question": "Which?"}))
    case.when(case.answer(text="db-2"))
    return case.model("It is db-2.")


def brought_to_its_end(case: Talk) -> Talk:
    """Whatever the session waits for comes: people approve and answer, tools run, the model says that it is done."""
    for _ in range(40):
        if case.state.ended:
            return case
        paths = list(case.state.launched)
        if paths and case.state.nodes[paths[0]].type == "turn":
            case.model("Done.")
        elif paths:
            case.when(NodeDone(paths[0], case.state.nodes[paths[0]].attempt, {"text": "x", "path": "a.txt"}))
        else:
            offered = [option["value"] for option in case.prompt.options]
            value = next((word for word in ("again", "approve") if word in offered), None)
            case.when(case.answer(value, text=None if value else "db-1"))
    raise AssertionError(f"it never ends: {case.state.phase}")


def test_a_conversation_can_be_forked_at_every_event() -> None:
    """A fork continues from there to the end of the flow, and what it sends to the model is legal at every call."""
    case = whole()
    assert case.state.status == "complete"
    seams = set()
    for at in range(1, len(case.events) + 1):
        try:
            copy = case.forked(at)
        except SessionEnded:
            continue
        seams.add(len(copy.events))
        brought_to_its_end(copy.claimed())
        assert copy.state.status == "complete", f"after event {at}"
    assert len(seams) > 10


# --- a new text of the flow ------------------------------------------------------------------------------------


def text_with(tools: str, prompt: str = "Why is {{ inputs.service }} down?", more: str = "") -> Flow:
    """The flow of the conversations here with other tools, another prompt, or more nodes."""
    lines = "".join(f"      {line}\n" for line in tools.splitlines())
    with_ = f'    with:\n      prompt: "{prompt}"\n{lines}'
    return flow_of(f"{SERVICE}\nnodes:\n{more}  - id: helper\n    type: agent\n{with_}")


def test_a_conversation_goes_on_with_a_new_text_of_its_flow() -> None:
    """Nodes before the agent and other words change nothing of what was said, asked and decided."""
    case = under_way()
    new = text_with(TOOLS, "Think.", "  - {id: early, type: noop}\n")
    made = plan(case.flow, new, case.state)
    assert (made.problems, made.waits, made.passed_over) == ([], {"helper": "agent"}, ["early"])
    assert made.nodes == {"helper": 1}
    after = Talk(new)
    past = Past(case.state, case.now)
    past.under(case.flow, new, BEN)
    after.state, after.events = past.state, [*case.events, *past.events]
    brought_to_its_end(after)
    assert after.state.status == "complete"
    results = [each.path for each in after.events if each.type == "agent:toolResult"]
    assert results == ["helper/turn[1]/tool[1]", "helper/turn[1]/tool[0]"]


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (
            text_with(TOOLS.replace("  - read_file\n", "")),
            "helper: is running, and the agent has other tools",
        ),
        (text_with(TOOLS.replace("- read_file", "- write_file")), "the agent has other tools"),
        (flow_of(f"{SERVICE}\nnodes:\n  - {{id: helper, type: noop}}"), "helper: is running as agent"),
        (
            flow_of(f"{SERVICE}\nnodes:\n  - {{id: other, type: noop}}"),
            "helper: is running, and the new version",
        ),
    ],
)
def test_a_conversation_keeps_its_tools(new: Flow, said: str) -> None:
    """A text in which the agent has other tools, is something else, or is gone, is refused while it is in progress."""
    case = under_way()
    made = plan(case.flow, new, case.state)
    assert said in "; ".join(made.problems)


# --- at the end of a flow --------------------------------------------------------------------------------------

AT_THE_END = """
nodes:
  - {id: a, type: noop}
finally:
  - id: helper
    type: agent
    with: {prompt: Sum up., max_turns: 1, tools: [{shell: {commands: ["*"]}}]}
"""


def test_an_agent_in_finally_fails_at_its_cap() -> None:
    """There is nobody to ask whether it may continue."""
    case = Talk(flow_of(AT_THE_END)).started().model("", CALLS[0])
    case.tool("tool[0]", DONE)
    assert case.state.status == "failed"
    error = case.node("finally/helper").error
    assert error is not None
    assert error["type"] == "budget"
    assert "`finally` cannot ask people" in error["message"]


def test_a_process_that_ends_leaves_a_call_in_finally_to_the_next() -> None:
    """Nobody stopped it: the call is made again elsewhere, and half an answer is not part of the conversation."""
    case = Talk(flow_of(AT_THE_END)).started()
    before = case.request()
    case.only(case.reply("All is", interrupted=True))
    case.claimed()
    assert case.request() == before
    assert case.model("All is well.").state.status == "complete"


def test_a_tool_that_was_interrupted_in_finally_is_an_error_for_the_model() -> None:
    """Nobody is asked whether the call had its effect; the model is told of the tool by its name that nobody knows."""
    case = Talk(flow_of(AT_THE_END.replace("max_turns: 1", "max_turns: 5"))).started()
    case.model("", CALLS[0]).claimed()
    assert "node helper.shell: it was interrupted" in case.said()
    assert case.model("Nobody knows.").state.status == "complete"


def test_what_is_left_of_a_conversation_that_was_ended_is_told_by_the_agents_name() -> None:
    """Of a call in the middle nobody knows whether it was done; the inner steps of the agent are no names for people."""
    case = talk(TOOLS.partition("approvals")[0], rest="  - {id: tell, type: noop}\n").model("", *CALLS)
    told = end_note(case.when(case.abort()).state, case.flow, "key").text
    assert told.splitlines()[1:] == ["*Outcome unknown:* helper.", "*Not done:* tell."]
    case = talk(rest="  - {id: tell, type: noop}\n")
    told = end_note(case.when(case.abort()).state, case.flow, "key").text
    assert told.splitlines()[1:] == ["*Not done:* tell."]


# --- tools of the file -----------------------------------------------------------------------------------------

CALLED = """
flow: look-up
description: Looks something up and asks whether it is right
inputs: {what: {}, times: {type: integer, default: 2}}
nodes:
  - {id: found, type: set, with: {text: "{{ inputs.what }} x {{ inputs.times }}"}}
  - {id: sure, type: ask, with: {message: "{{ nodes.found.text }}?"}}
"""
CALLING = """
flow: demo
tools:
  look_up: {type: flow, with: {flow: look-up}}
  note: {description: Keeps a note, input: {text: {}}, type: set, with: {kept: "{{ region }} {{ index }}: {{ input.text }}"}}
nodes:
  - id: each
    type: foreach
    with: {items: [eu, us], as: region}
    body:
      - {id: helper, type: agent, with: {prompt: "Look at {{ region }}", tools: [look_up, note]}}
  - {id: inner, type: flow, with: {flow: talking}}
"""
TALKING = """
flow: talking
nodes:
  - {id: helper, type: agent, with: {prompt: Hello, tools: [{shell: {commands: ["*"]}}], approvals: {"*": [approve, reject]}}}
"""


def calling() -> Talk:
    """A session of a flow whose agents are in a loop, and in a flow that it calls; one tool is a flow."""
    called = {text.split()[1]: load_flow(text, "called.yml") for text in (CALLED, TALKING)}
    return Talk(load_flow(CALLING, "demo.yml", flows=called.get)).started()


def test_a_flow_is_a_tool_whose_nodes_may_ask_people() -> None:
    """The called flow runs under the path of the call, and what its nodes gave is the result."""
    case = calling().model("", ("look_up", {"what": "db"}))
    assert case.prompt.path == "each[0]/helper/turn[1]/tool[0]/sure"
    assert case.prompt.message == "db x 2?"
    assert "look_up started" in "\n".join(drawn(case))
    case.when(case.answer(text="quite"))
    assert "quite" in case.said()


def test_an_input_that_the_flow_does_not_take_is_an_error_for_the_model() -> None:
    """Nothing of the flow runs."""
    case = calling().model("", ("look_up", {"who": "db"}))
    assert "does not fit" in case.said()


def test_a_tool_knows_the_names_of_the_place_where_its_agent_stands() -> None:
    """In a loop the item and the number of the round; each agent has its own."""
    case = calling().model("", ("note", {"text": "slow"}))
    assert "eu 0: slow" in case.said()
    case.model("Well.").model("", ("note", {"text": "fast"}))
    assert "us 1: fast" in case.said()


def test_an_agent_of_a_called_flow_has_its_tools_there() -> None:
    """Its calls, approvals and paths are those of any agent, under the path of the call."""
    case = calling().model("Well.").model("Well.").model("", ("shell", {"command": "uptime"}))
    assert case.prompt.path == "inner/helper/turn[1]/tool[0]"
    case.decide("approve").tool("tool[0]", DONE)
    assert case.model("It is up.").state.status == "complete"
    assert case.node("inner").output["outputs"]["helper"]["text"] == "It is up."
