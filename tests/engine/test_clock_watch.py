"""A clock that was put forward is looked at twice before anything has ended by it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.decide.commands import Answer, Shown
from engine.language import timestamps
from engine.language.errors import ClockJumped, PromptTimedOut
from engine.run.clock_watch import ClockWatch
from engine.run.dispatcher import perform
from engine.run.remote_commands import item
from tests.support.engine import ANA, START, Backing, Clock, EngineRig, running, served

HOUR = 3600.0
ASK = "nodes: [{id: q, type: ask, with: {message: How?, timeout: 2h}}]"


@dataclass
class Machine:
    """A wall clock and a steady one that run together until the wall clock is put elsewhere."""

    wall: float = 0.0
    steady: float = 100.0

    def __post_init__(self) -> None:
        self.watch = ClockWatch(lambda: self.steady)

    def passes(self, seconds: float) -> Machine:
        """Time passes."""
        self.wall, self.steady = self.wall + seconds, self.steady + seconds
        return self

    def put(self, seconds: float) -> Machine:
        """The wall clock is put forward (or back), or the machine slept."""
        self.wall += seconds
        return self

    def jumped(self) -> bool:
        """Look."""
        return self.watch.jumped(timestamps.after(START, self.wall))


def test_the_first_look_of_a_process_counts() -> None:
    """It has nothing to compare with."""
    assert not Machine(wall=1e7).jumped()


def test_time_that_passes_is_no_jump() -> None:
    """However long nobody looked: the steady clock saw it pass."""
    machine = Machine()
    assert not machine.jumped()
    assert not machine.passes(30 * 24 * HOUR).jumped()


@pytest.mark.parametrize(("forward", "expected"), [(HOUR, False), (HOUR + 1, True)])
def test_more_than_an_hour_is_a_jump(forward: float, expected: bool) -> None:
    """A summer time that was set by hand is none."""
    machine = Machine()
    machine.jumped()
    assert machine.put(forward).jumped() is expected


def test_a_second_look_half_a_minute_later_confirms_it() -> None:
    """Looks in between change nothing; afterwards the clock is believed as ever."""
    machine = Machine()
    machine.jumped()
    assert machine.put(8 * HOUR).jumped()
    assert machine.passes(29.9).jumped()
    assert not machine.passes(0.1).jumped()
    assert not machine.passes(1).jumped()


def test_a_clock_that_is_put_right_again_is_believed_at_once() -> None:
    """What the wrong time said is forgotten."""
    machine = Machine()
    machine.jumped()
    assert machine.put(8 * HOUR).jumped()
    assert not machine.passes(1).put(-8 * HOUR).jumped()


def test_another_jump_begins_anew() -> None:
    """The second look has to find the clock where the first one did."""
    machine = Machine()
    machine.jumped()
    assert machine.put(8 * HOUR).jumped()
    assert machine.passes(31).put(8 * HOUR).jumped()
    assert machine.passes(29).jumped()
    assert not machine.passes(1).jumped()


# --- in an engine ------------------------------------------------------------------------------------------


@dataclass
class Steady:
    """Seconds that only the test moves."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


async def asked(rig: EngineRig) -> str:
    """A session whose question is in front of people; the prompt's id."""
    session_id = (await rig.settled(ASK)).session_id
    prompt = await rig.open_prompt(session_id)
    await rig.engine.apply(session_id, Shown(prompt.prompt_id, {"channel": "C1", "ts": "1.2"}))
    return session_id


async def test_after_a_jump_nothing_is_decided_before_the_second_look(
    backing: Backing, tmp_path: Path
) -> None:
    """After a laptop slept past the deadline, no timer fires and an answer waits until the clock is checked; then the deadline counts."""
    now, steady = Clock(), Steady()
    async with running(backing.open(), tmp_path, now=now, steady=steady) as rig:
        session_id = await asked(rig)
        prompt = await rig.open_prompt(session_id)
        now.advance(3 * HOUR)
        async with served(rig.engine):
            assert "prompt:expired" not in await rig.types(session_id)
        with pytest.raises(ClockJumped):
            await rig.engine.apply(session_id, Answer(prompt.prompt_id, ANA, "k", text="fine"))
        now.advance(30)
        steady.seconds += 30
        with pytest.raises(PromptTimedOut):
            await rig.engine.apply(session_id, Answer(prompt.prompt_id, ANA, "k", text="fine"))
        async with served(rig.engine):
            await rig.committed.until("prompt:expired", session_id)


async def test_a_request_waits_in_the_inbox_for_the_second_look(backing: Backing, tmp_path: Path) -> None:
    """A row that the clock keeps from being decided is neither carried out nor refused."""
    now, steady = Clock(), Steady()
    async with running(backing.open(), tmp_path, now=now, steady=steady) as rig:
        session_id = await asked(rig)
        prompt = await rig.open_prompt(session_id)
        now.advance(3 * HOUR)
        request = item("r1", session_id, "answer", actor=ANA, promptId=prompt.prompt_id, text="fine")
        await rig.engine.writer.ingest([request], now())
        row = await rig.engine.writer.call(rig.engine.store.inbox.row, "r1")
        with pytest.raises(ClockJumped):
            await perform(rig.engine, row)
        assert (await rig.engine.writer.call(rig.engine.store.inbox.row, "r1")).outcome is None
