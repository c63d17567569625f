"""What the terminal says of what happens in a session."""

from __future__ import annotations

import io
from typing import Any

from msgspec.structs import replace

from bot.terminal.console import Paint
from bot.terminal.narration import answered_by, happened
from engine.journal import events as ev
from engine.journal.state import State
from engine.language.actors import Actor
from tests.support.engine import START


def told(path: str, reason: Any) -> str | None:
    """The line for a node that was interrupted."""
    event = ev.NodeInterrupted(seq=1, timestamp=START, path=path, node_id="x", reason=reason)
    return happened(State(), event, Paint(io.StringIO()))


def test_an_answer_from_an_account_of_another_name_is_marked() -> None:
    """Whoever goes by a name at a terminal may be anybody with that account; under its own name nothing is added."""
    for name, who in (("ana", "ana (account sys)"), ("sys", "sys")):
        assert answered_by(Actor.local(name, "sys").record()) == who


def test_a_node_that_left_at_a_checkpoint_is_told_so() -> None:
    """It goes on from there: nothing about it is unknown."""
    assert told("work", "left") == "  ! work  left at a checkpoint; goes on from there"


def test_a_model_call_that_begins_again_says_nothing() -> None:
    """More was set aside for it; nothing was sent before."""
    assert told("diagnose/turn[1]", "left") is None
    assert "killed" in (told("diagnose/turn[1]", "crash") or "")


def test_thinking_that_was_left_out_is_told() -> None:
    """Who runs the session hears how much of it the model does not have any more."""
    fields: dict[str, Any] = {
        "role": "assistant",
        "source": "model",
        "content": [],
        "turn": "diagnose/turn[2]",
    }
    answer = ev.AgentMessage(seq=1, timestamp=START, path="diagnose", node_id="diagnose", **fields)
    assert happened(State(), answer, Paint(io.StringIO())) is None
    left_out = replace(answer, dropped={"model_binding_mismatch": 2, "prefix_binding_mismatch": 1})
    line = happened(State(), left_out, Paint(io.StringIO()))
    assert line == "  ! diagnose/turn[2]  the API left out 3 blocks of earlier thinking"
