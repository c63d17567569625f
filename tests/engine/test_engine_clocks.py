"""Clocks of questions over restarts, in every store: each counts once, however long nobody was there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from engine.decide.commands import Shown
from engine.language.errors import StorageError
from tests.support.engine import Backing, Clock, EngineRig, FaultyStore, running, served

MINUTE = 60.0
FLOW = """
nodes:
  - id: q
    type: ask
    with:
      message: How?
      timeout: 2h
      remind_every: 10m
      escalate: [{after: 15m, to: [U0BEN]}, {after: 30m, to: ["@leads"], may_answer: true}]
"""


async def asked(rig: EngineRig) -> str:
    """A session whose question is in front of people; its id."""
    session_id = (await rig.settled(FLOW)).session_id
    prompt = await rig.open_prompt(session_id)
    await rig.engine.apply(session_id, Shown(prompt.prompt_id, {"channel": "C1", "ts": "1.2"}))
    return session_id


async def told(rig: EngineRig, session_id: str) -> Counter[str]:
    """How often the journal says what about the question."""
    return Counter(kind for kind in await rig.types(session_id) if kind.startswith("prompt:"))


async def test_a_start_after_a_long_time_tells_each_thing_once(backing: Backing, tmp_path: Path) -> None:
    """After downtime across three reminders and two steps, there is one reminder, and each step runs once, in order."""
    now = Clock()
    async with running(backing.open(), tmp_path, now=now) as rig:
        session_id = await asked(rig)
    now.advance(50 * MINUTE)
    for _ in range(2):
        async with running(backing.open(), tmp_path, now=now) as rig, served(rig.engine):
            found = await told(rig, session_id)
            assert (found["prompt:reminded"], found["prompt:escalated"]) == (1, 2)
            prompt = await rig.open_prompt(session_id)
            assert prompt.escalated == (0, 1)
            assert prompt.who == ("requester", "@leads")
            assert len(rig.store.timers.rows()) == 2


async def test_a_reminder_whose_commit_fails_comes_once(backing: Backing, tmp_path: Path) -> None:
    """The timer stays in the store until what follows from it is stored with it: then it is gone."""
    now = Clock()
    store = FaultyStore(backing.open())
    async with running(store, tmp_path, now=now) as rig:
        session_id = await asked(rig)
        store.failures.append(StorageError("the disk is full"))
        now.advance(10 * MINUTE)
        async with served(rig.engine) as service:
            await store.failed.wait()
            service.notify()
            await rig.committed.until("prompt:reminded", session_id)
        assert (await told(rig, session_id))["prompt:reminded"] == 1


@pytest.mark.parametrize("minutes", [10, 30, 119])
async def test_an_answer_and_a_clock_at_once_first_one_wins(
    backing: Backing, tmp_path: Path, minutes: int
) -> None:
    """If the answer is stored first, timers that are due have no effect."""
    now = Clock()
    async with running(backing.open(), tmp_path, now=now) as rig:
        session_id = await asked(rig)
        now.advance(minutes * MINUTE)
        await rig.reply(session_id, "fine")
        async with served(rig.engine):
            found = await told(rig, session_id)
        assert found == {"prompt:requested": 1, "prompt:shown": 1, "prompt:answered": 1}
        assert (await rig.engine.state(session_id)).status == "complete"
