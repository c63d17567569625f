"""Warnings of what starts flows: the same words twice, words of the bot's own, and runs that nobody asked for."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from bot.inbound.meaning import asks
from engine.flow import Flow
from engine.flow.checks.starts import BUILT_IN, start_warnings
from engine.flow.load import load_flow
from prompt_state.routing import ControlWord, read_message

SCHEDULE = {"schedule": "0 9 * * *", "channel": "#ops"}
ALERT = {"message": "is down", "from_bots": True}
HOOK = {"webhook": "ci", "secret": "CI", "channel": "#ops"}


def flow(name: str, *triggers: dict[str, Any], node: dict[str, Any] | None = None, **more: Any) -> Flow:
    """A flow with these triggers, and a node that is looked at."""
    entry = {"id": "gate", "type": "wait", "with": {"for": "1s"}, **(node or {})}
    inputs = {"x": {"default": "y"}}
    written = {"flow": name, "inputs": inputs, "triggers": list(triggers), "nodes": [entry], **more}
    return load_flow(json.dumps(written), f"{name}.yml")


def warned(*flows: Flow) -> list[tuple[str, str]]:
    """The files that are warned of, and what is said of them."""
    return [(problem.file, problem.message) for problem in start_warnings(flows)]


SAME = [
    ({"mention": "deploy {x}"}, {"mention": "Deploy  {x}"}, "only one of the two starts"),
    ({"message": "is down"}, {"message": "is down"}, "both start"),
    (
        {"message": "is down", "channels": ["#A", "#b"]},
        {"message": "is down", "channels": ["#a"]},
        "both start",
    ),
    ({"reaction": "eyes"}, {"reaction": "eyes"}, "both start"),
    ({"shortcut": "Look"}, {"shortcut": "Look"}, "cannot be told apart"),
    ({"message": "is down", "channels": ["#a"]}, {"message": "is down", "channels": ["#b"]}, None),
    ({"mention": "deploy {x}"}, {"mention": "deploy now {x}"}, None),
    ({"mention": "is down"}, {"message": "is down"}, None),
    (HOOK, HOOK, None),
]


@pytest.mark.parametrize(("one", "other", "what"), SAME)
def test_the_same_words_twice_are_warned_of(
    one: dict[str, Any], other: dict[str, Any], what: str | None
) -> None:
    """Two triggers that the same fits are told, in two flows and in one, unless no channel hears both."""
    across, within = warned(flow("a", one), flow("b", other)), warned(flow("a", one, other))
    if what is None:
        assert (across, within) == ([], [])
        return
    ((file, message),) = across
    assert file == "b.yml"
    assert "is also used in the flow `a` (a.yml)" in message
    assert what in message
    ((_, message),) = within
    assert "is also used here" in message


def test_words_that_are_the_name_of_another_flow_are_warned_of() -> None:
    """The name of a flow alone starts that flow, unless another one listens to it."""
    assert "is the name of another flow" in warned(flow("deploy"), flow("b", {"mention": "Deploy"}))[0][1]
    assert warned(flow("deploy", {"mention": "Deploy"})) == []


@pytest.mark.parametrize("words", ["help", "Status", "memory {x}", "run {x}", "run all of {x}"])
def test_words_of_the_bot_itself_are_warned_of(words: str) -> None:
    """Words that the bot understands itself may start nothing behind a mention; in a channel they do."""
    assert "has its own command" in warned(flow("a", {"mention": words}))[0][1]
    assert warned(flow("a", {"message": words}), flow("b", {"mention": f"please {words}"})) == []


def test_flows_with_such_names_are_warned_of() -> None:
    """The name of such a flow alone is answered by the bot."""
    assert "only with `run help`" in warned(flow("help"))[0][1]


def test_all_words_of_the_bot_are_known() -> None:
    """What the bot answers or obeys where it is the whole message is on the list of its words."""
    said = [read_message(word, bot_user_id="U1", user="U2", ts="1.0", thread_ts=None) for word in BUILT_IN]
    others = {word.text for word in said if asks(word, ())}
    assert {*get_args(ControlWord), *others, "run"} == BUILT_IN


def ask(kind: str, **config: Any) -> dict[str, Any]:
    """A node that asks or tells somebody."""
    return {"type": kind, "with": {"text" if kind == "message" else "message": "Go?", **config}}


NOBODY = [
    ask("approval", approvers=["requester"]),
    ask("approval", approvers=["manager"]),
    ask("ask", who=["requester"]),
    ask("ask", escalate=[{"after": "1h", "to": "requester"}]),
    ask("message", to="dm:requester"),
    ask("message", ephemeral_to="requester"),
    {
        "type": "agent",
        "with": {
            "prompt": "x",
            "tools": ["write_file"],
            "approvals": {"write_file": {"approvers": ["manager"]}},
        },
    },
]


@pytest.mark.parametrize("node", NOBODY)
@pytest.mark.parametrize(
    ("trigger", "by"), [(SCHEDULE, "a schedule"), (ALERT, "an app's message"), (HOOK, "a web")]
)
def test_a_requester_that_there_may_not_be_is_warned_of(
    node: dict[str, Any], trigger: dict[str, Any], by: str
) -> None:
    """Where no person starts a flow, a node that needs the requester is named, and what starts it so."""
    ((_, message),) = warned(flow("a", {"reaction": "eyes"}, trigger, node=node))
    assert message.startswith(by)
    assert "`gate`" in message
    assert warned(flow("a", {"reaction": "eyes"}, {"message": "x"}, node=node)) == []


@pytest.mark.parametrize(
    "node",
    [
        ask("approval", approvers=["requester", "@sre"]),
        ask("approval", approvers=["@sre"], exclude_requester=True),
        ask("ask"),
        ask("ask", who=["channel"]),
        ask("message", to="#ops"),
    ],
)
def test_questions_for_others_too_are_sound(node: dict[str, Any]) -> None:
    """Who names others beside the requester, or nobody, reaches somebody."""
    assert warned(flow("a", SCHEDULE, node=node)) == []
