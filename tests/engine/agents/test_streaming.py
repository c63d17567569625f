"""What a model says while it says it: told by session and path, never stored, and no business of the conversation."""

from __future__ import annotations

from pathlib import Path

from engine.messages.turns import Finished, TextDelta, TurnEvent
from engine.models.scripted import ScriptedProvider, script_from
from engine.models.turn_runner import TurnRunner
from engine.storage.open import MemoryStore
from tests.support.engine import running

FLOW = """
nodes:
  - id: helper
    type: agent
    with: {prompt: Why is it failing?, max_tokens: 1000}
"""


def runner() -> TurnRunner:
    """Says one sentence."""
    provider = ScriptedProvider(script_from([{"text": "The disk of db-1 is full."}]))
    return TurnRunner(lambda ctx: provider)


async def test_pieces_are_told_with_their_session_and_path(tmp_path: Path) -> None:
    """Whoever listens to the engine hears each piece of each model call, in order, and its end."""
    told: list[tuple[str, str, TurnEvent]] = []
    async with running(MemoryStore(), tmp_path, runners={"turn": runner()}) as rig:
        rig.engine.executor.on_stream = lambda session_id, path, event: told.append((session_id, path, event))
        session_id = await rig.start(FLOW)
        await rig.engine.parked(session_id)
    assert {(who, path) for who, path, _ in told} == {(session_id, "helper/turn[1]")}
    events = [event for _, _, event in told]
    assert (
        "".join(event.text for event in events if isinstance(event, TextDelta)) == "The disk of db-1 is full."
    )
    assert isinstance(events[-1], Finished)


async def test_a_listener_that_fails_disturbs_nothing(tmp_path: Path) -> None:
    """The conversation ends as it would have, whatever showing it raises."""

    def broken(session_id: str, path: str, event: TurnEvent) -> None:
        raise ConnectionError("Slack is away")

    async with running(MemoryStore(), tmp_path, runners={"turn": runner()}) as rig:
        rig.engine.executor.on_stream = broken
        state = await rig.settled(FLOW)
    assert state.nodes["helper"].output["text"] == "The disk of db-1 is full."
