"""What holds for every frontend: the runtime's own, the terminal, the thread of a scenario, and that of the tests.

Slack has no `Frontend`: its outbox worker edits in place and looks for what it sent by its key (tests of `bot.outbound`).
"""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from bot.scenarios.life import Thread
from bot.scenarios.load import Flows, load_scenario
from bot.scenarios.world import World
from bot.terminal.follower import TerminalFrontend
from bot.terminal.screen import TerminalScreen
from engine.journal.state import Asked
from engine.language.codec import canonical
from engine.run.frontend import Frontend, Message, NoFrontend, NotDelivered
from tests.engine.test_runtime import Recorder
from tests.support.engine import given

STATE = given('flow: f\nnodes: [{id: q, type: ask, with: {message: "Q?"}}]').started().state
SCENARIO = Path(__file__).resolve().parents[2] / "examples" / "scenarios" / "access-request.yml"


def thread() -> Frontend:
    """The thread of a scenario."""
    scenario = load_scenario(SCENARIO, Flows())
    return Thread(World.of(scenario, Path()))


FRONTENDS: dict[str, Callable[[], Frontend]] = {
    "runtime": NoFrontend,
    "terminal": lambda: TerminalFrontend(TerminalScreen(StringIO())),
    "scenario": thread,
    "recorder": Recorder,
}


@pytest.fixture(params=FRONTENDS)
def frontend(request: pytest.FixtureRequest) -> Frontend:
    """Each of them."""
    return FRONTENDS[request.param]()


def asked() -> Asked:
    """An open question."""
    [prompt_id] = STATE.open_prompts
    return STATE.prompts[prompt_id]


async def test_a_question_has_a_place_that_can_be_journaled(frontend: Frontend) -> None:
    """What `ask` returns is a JSON object, and not empty: it says where the question stands."""
    shown = await frontend.ask(STATE, asked(), "ask:1")
    assert shown
    assert canonical(shown)


async def test_a_question_that_is_asked_again_stands_where_it_stood(frontend: Frontend) -> None:
    """After a crash the same key comes again."""
    assert await frontend.ask(STATE, asked(), "ask:1") == await frontend.ask(STATE, asked(), "ask:1")


async def test_a_message_has_an_output_or_a_sentence(frontend: Frontend) -> None:
    """What `deliver` returns is the output of the node, the same for the same key; else it says why there is none."""
    message = Message("session-1", "say", "Hello", {"text": "Hello"})
    if isinstance(frontend, NoFrontend):
        with pytest.raises(NotDelivered, match=r"frontend=.*\.$"):
            await frontend.deliver(message, "message:1")
        return
    output = await frontend.deliver(message, "message:1")
    assert canonical(output)
    assert await frontend.deliver(message, "message:1") == output


async def test_an_end_and_events_are_taken(frontend: Frontend) -> None:
    """A question that was never asked here can be closed, and events need no start."""
    await frontend.close(STATE, asked())
    frontend.observe(STATE, [])
