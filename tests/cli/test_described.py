"""Events in words: what a terminal, a scenario's story and the tree of a session say of them.

`described.txt` is a gallery: each type of event with the lines that real histories give for it. After a change of words,
`python -m tests.cli.test_described` writes it again, to be read in review.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from bot.terminal.console import Paint
from bot.terminal.described import described, painted
from bot.terminal.narration import answered_by
from engine.journal import events as ev
from engine.journal.fold import evolve
from engine.journal.state import State
from engine.language.actors import Actor
from tests.engine.histories import histories
from tests.support.engine import START

GALLERY = Path(__file__).with_name("described.txt")
MOST = 6
"""Lines of one type in the gallery."""


def lines(state: State, event: ev.Event) -> list[str]:
    """The lines for an event, without colours."""
    return [painted(found, Paint(io.StringIO())) for found in described(state, event)]


def told(path: str, reason: Any) -> str:
    """The line for a node that was interrupted."""
    event = ev.NodeInterrupted(seq=1, timestamp=START, path=path, node_id="x", reason=reason)
    return "\n".join(lines(State(), event))


def gallery() -> str:
    """Every type of event, with what is said of it in the histories."""
    found: dict[str, dict[str, None]] = {name: {} for name in ev.EVENTS}
    for history in histories().values():
        state = State()
        for event in history.events:
            state = evolve(state, event)
            with patch("bot.terminal.described.moment", str):  # the hour here depends on the place
                told = (re.sub(r"prompt-[0-9a-f]{12}", "prompt-…", line) for line in lines(state, event))
                found[event.type] |= dict.fromkeys(told)
    parts = ["\n".join([name, *list(found[name])[:MOST]]) for name in found]
    return "\n\n".join(parts) + "\n"


def test_the_gallery_shows_what_is_said_of_every_type_of_event() -> None:
    """A changed word shows here, and a type of event that nobody thought of."""
    assert gallery() == GALLERY.read_text()


def test_an_answer_from_an_account_of_another_name_is_marked() -> None:
    """Whoever goes by a name at a terminal may be anybody with that account; under its own name nothing is added."""
    for name, who in (("ana", "ana (account sys)"), ("sys", "sys")):
        assert answered_by(Actor.local(name, "sys").record()) == who


def test_a_node_that_left_at_a_checkpoint_is_told_so() -> None:
    """It continues from there: nothing about it is unknown."""
    assert told("work", "left") == "  ! work  left; can continue where it stopped"


def test_a_model_call_that_begins_again_says_nothing() -> None:
    """More was set aside for it; nothing was sent before."""
    assert told("diagnose/turn[1]", "left") == ""
    assert "killed" in told("diagnose/turn[1]", "crash")


def test_thinking_that_was_left_out_is_told() -> None:
    """Who runs the session hears how much of it the model does not have any more."""
    fields: dict[str, Any] = {
        "role": "assistant",
        "source": "model",
        "content": [],
        "turn": "diagnose/turn[2]",
    }
    answer = ev.AgentMessage(seq=1, timestamp=START, path="diagnose", node_id="diagnose", **fields)
    assert lines(State(), answer) == []
    left_out = replace(answer, dropped={"model_binding_mismatch": 2, "prefix_binding_mismatch": 1})
    assert lines(State(), left_out) == ["  ! diagnose/turn[2]  the API dropped 3 blocks of earlier thinking"]


if __name__ == "__main__":
    GALLERY.write_text(gallery())
