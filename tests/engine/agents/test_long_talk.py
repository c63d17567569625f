"""A long talk in which each turn is another process: what is sent only grows, is read from the cache, and is paid once."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from engine.journal.events import AgentMessage, ChildStarted, Event
from engine.journal.queries import TURN
from engine.models import claude
from tests.engine.agents.test_frozen_wire import World
from tests.support.claude_binding import grows
from tests.support.claude_cache import Cache
from tests.support.claude_server import Reply, call, claude_server
from tests.support.engine import SESSION
from tests.support.proving import sampled

TALK = """
flow: talk
nodes:
  - id: diagnose
    type: agent
    with: {prompt: Why is it down?, tools: [ask_human], max_turns: 60}
"""


class Talked(World):
    """A talk of so many questions; the server thinks, asks, and counts what it reads from its cache."""

    flow = TALK

    def __init__(self, folder: Path, server: Any, turns: int) -> None:
        super().__init__(folder, server)
        self.turns, self.cache = turns, Cache()
        server.mind = self.answer

    def answer(self, body: Any) -> Reply:
        """Ask once more, and at last say what it was."""
        place = sum(message["role"] == "assistant" for message in body["messages"])
        question = call("ask_human", {"question": f"And what of number {place}?"}, f"toolu_{place}")
        last = {"type": "text", "text": "The disk is full."}
        thinking = {"type": "thinking", "thinking": f"So {place}.", "signature": ""}
        blocks = [thinking, question if place < self.turns - 1 else last]
        return Reply(blocks, usage=self.cache.usage(body, blocks))

    async def run(self) -> list[Event]:
        """Each turn in a life of its own; the whole journal."""
        async with self.life() as engine:
            await self.begin(engine)
        for number in range(self.turns - 1):
            async with self.life() as engine:
                state = await self.reply(engine, f"It is fine, {number}")
                journal = await engine.journal(SESSION)
        assert state.status == "complete"
        assert Decimal(state.spent.cost) == self.cache.bill
        return list(journal)


@pytest.mark.parametrize("turns", sampled([8, 50], [8]))
async def test_a_talk_with_a_restart_per_turn_reads_all_it_said_from_the_cache(
    tmp_path: Path, turns: int
) -> None:
    """Each body is the one before with more behind it, each call but the first reads all that the one before it sent, and
    no call costs more than was reserved for it."""
    async with claude_server() as server:
        world = Talked(tmp_path / "world", server, turns)
        journal = await world.run()
        assert server.refused == []
        assert len(server.requests) == turns
        grows([request.body for request in server.requests])
    assert world.cache.reads[0] == 0
    assert world.cache.reads[1:] == world.cache.inputs[:-1]
    reserved = {
        event.path: Decimal((event.input or {})["reserved"])
        for event in journal
        if isinstance(event, ChildStarted) and event.node_type == TURN
    }
    paid = {
        event.turn: Decimal(event.cost or 0)
        for event in journal
        if isinstance(event, AgentMessage) and event.turn
    }
    assert paid.keys() == reserved.keys()
    assert all(0 < cost <= reserved[turn] for turn, cost in paid.items())


async def test_a_cache_without_marks_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fault that no mark is sent, nothing is read."""
    monkeypatch.setattr(claude, "_cached", lambda body, life: body)
    async with claude_server() as server:
        world = Talked(tmp_path / "world", server, 3)
        await world.run()
    assert world.cache.reads == [0, 0, 0]
