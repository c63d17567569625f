"""Python nodes in sessions: paused in the middle, shut down, killed with -9, and what runs again with which key."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from engine.nodes.runtime.table import runners
from engine.storage.open import MemoryStore
from tests.engine.test_kill import asked, child, finish, journal
from tests.support.engine import ANA, counted, running, until

GATES: dict[str, threading.Event] = {}
"""Signals between a test and the functions below, which its flows call."""

RAN: list[object] = []


def gate(name: str) -> threading.Event:
    """A signal by name."""
    return GATES.setdefault(name, threading.Event())


def counting(ctx) -> int:  # type: ignore[no-untyped-def]  # as users write it
    """Counts to five, one step for each `step` that the test allows; leaves at a checkpoint."""
    for number in range(ctx.saved or 0, 5):
        ctx.checkpoint(number)
        RAN.append((number, ctx.idempotency_key, ctx.attempt))
        gate(f"ran {number}").set()
        while not (gate(f"go {number}").is_set() or ctx.aborted):
            gate("tick").wait(0.005)
        if number == 4:
            ctx.checkpoint(number)
    return 5


FLOW = "nodes: [{id: a, type: python, with: {call: 'tests.nodes.test_python_sessions:counting'}}]"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    GATES.clear()
    RAN.clear()


async def reached(name: str) -> None:
    """Wait until a function says so."""
    assert await asyncio.to_thread(gate(name).wait, 20)


def rig(tmp_path: Path):  # type: ignore[no-untyped-def]  # what `running` gives
    """An engine with the real runners."""
    return running(MemoryStore(), tmp_path, runners=runners())


async def test_a_paused_node_goes_on_where_it_left(tmp_path: Path) -> None:
    """Pause and resume, twice, in the middle: no step is done twice, nobody is asked, the key stays the same."""
    async with rig(tmp_path) as engine_rig:
        engine = engine_rig.engine
        session_id = await engine_rig.start(FLOW)
        for number in (1, 3):
            for before in range(number):
                gate(f"go {before}").set()
            await reached(f"ran {number}")
            state = await asyncio.wait_for(engine.pause(session_id, actor=ANA), 2)
            assert (state.phase, state.nodes["a"].reason, state.nodes["a"].saved) == (
                "held",
                "left",
                number + 1,
            )
            assert not state.open_prompts
            await engine.resume(session_id, "go on", actor=ANA)
        for number in range(5):
            gate(f"go {number}").set()
        state = await engine.parked(session_id)
    assert (state.status, state.nodes["a"].output) == ("complete", 5)
    key = f"{session_id}:a"
    assert [(0, key, 1), (1, key, 1), (2, key, 2), (3, key, 2), (4, key, 3)] == RAN


async def test_a_shutdown_lets_the_node_leave(tmp_path: Path) -> None:
    """A process that ends leaves at a checkpoint; the next one continues from there without asking."""
    store = MemoryStore()
    async with running(store, tmp_path, runners=runners()) as first:
        session_id = await first.start(FLOW)
        await reached("ran 0")
        await first.engine.drain(0)
        assert (await first.engine.state(session_id)).nodes["a"].saved == 1
        again = store.another()
    for number in range(5):
        gate(f"go {number}").set()
    async with running(again, tmp_path, runners=runners()) as second:
        await second.engine.apply(session_id, None)
        assert (await second.engine.parked(session_id)).status == "complete"
    assert [number for number, _, _ in RAN] == [0, 1, 2, 3, 4]  # type: ignore[misc]  # triples here


# --- killed ----------------------------------------------------------------------------------------------

MODULE = """
import pathlib, time

def work(log, gate, ctx):
    with open(log, "a") as file:
        file.write(ctx.idempotency_key + "\\n")
    while not pathlib.Path(gate).exists():
        ctx.checkpoint()
        time.sleep(0.01)
    return {"attempt": ctx.attempt}
"""
KILLED = """
flow: killed
nodes:
  - {{id: work, type: python, with: {{call: "beside_killed:work", args: {{log: "{log}", gate: "{gate}"}}}}}}
"""


@pytest.mark.process
async def test_killed_in_a_python_node_a_person_is_asked(tmp_path: Path) -> None:
    """Nobody knows how far it came: it does not run again unasked, and then with the same key."""
    log = tmp_path / "log"
    (tmp_path / "beside_killed.py").write_text(MODULE)
    (tmp_path / "flow.yml").write_text(KILLED.format(log=log, gate=tmp_path / "gate"))
    (tmp_path / "answer").write_text("again")
    process = child(tmp_path)
    await until(lambda: len(counted(log)) == 1)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    (tmp_path / "gate").touch()
    finish(tmp_path)
    assert asked(tmp_path) == {"work": 1}
    assert Counter(counted(log)) == {"session-0badcafe:work": 2}
    starts = [event for event in journal(tmp_path) if event.type == "node:started" and event.path == "work"]
    assert len(starts) == 2
