"""Python nodes in sessions: paused in the middle, aborted, killed with -9, and what runs again with which key."""

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
from tests.support.engine import ANA, EngineRig, counted, running, until

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


def stubborn() -> str:
    """Looks at nothing."""
    RAN.append("stubborn")
    gate("begun").set()
    gate("go").wait(30)
    return "done"


FLOW = (
    "nodes: [{id: a, type: python, with: {call: 'tests.nodes.test_python_sessions:%s'}}, {id: b, type: noop}]"
)


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
        session_id = await engine_rig.start(FLOW % "counting")
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


async def test_a_node_that_does_not_look_keeps_the_session_pausing(tmp_path: Path) -> None:
    """The pause waits for it; its result counts, and what follows does not start until the resume."""
    async with rig(tmp_path) as engine_rig:
        engine = engine_rig.engine
        session_id = await engine_rig.start(FLOW % "stubborn")
        await reached("begun")
        pausing = asyncio.create_task(engine.pause(session_id, actor=ANA))
        done, _ = await asyncio.wait({pausing}, timeout=0.7)
        assert not done
        gate("go").set()
        state = await pausing
        assert (state.phase, state.nodes["a"].output, "b" in state.nodes) == ("held", "done", False)
        await engine.resume(session_id, "go on", actor=ANA)
        assert (await engine.parked(session_id)).status == "complete"
    assert RAN == ["stubborn"]


async def test_an_abort_reaches_the_node(tmp_path: Path) -> None:
    """It leaves at its next checkpoint, and the session has ended."""
    async with rig(tmp_path) as engine_rig:
        session_id = await engine_rig.start(FLOW % "counting")
        await reached("ran 0")
        await engine_rig.engine.abort(session_id, actor=ANA)
        assert (await asyncio.wait_for(engine_rig.engine.parked(session_id), 3)).status == "aborted"
    assert len(RAN) == 1


async def test_a_shutdown_lets_the_node_leave(tmp_path: Path) -> None:
    """A process that ends leaves at a checkpoint; the next one continues from there without asking."""
    store = MemoryStore()
    async with running(store, tmp_path, runners=runners()) as first:
        session_id = await first.start(FLOW % "counting")
        await reached("ran 0")
        await first.engine.drain(0)
        assert (await first.engine.state(session_id)).nodes["a"].saved == 1
        again = store.another()
    for number in range(5):
        gate(f"go {number}").set()
    async with running(again, tmp_path, runners=runners()) as second:
        await _taken_up(second, session_id)
    assert [number for number, _, _ in RAN] == [0, 1, 2, 3, 4]  # type: ignore[misc]  # triples here


async def _taken_up(second: EngineRig, session_id: str) -> None:
    await second.engine.apply(session_id, None)
    assert (await second.engine.parked(session_id)).status == "complete"


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
  - {{id: work, type: python, {policy} with: {{call: "beside_killed:work", args: {{log: "{log}", gate: "{gate}"}}}}}}
  - {{id: after, type: set, with: {{attempt: "{{{{ nodes.work.attempt if nodes.work else 0 }}}}"}}}}
"""


def prepare(folder: Path, policy: str, answer: str) -> Path:
    """A flow, its module beside it, and what a person says. Returns the file of effects."""
    log = folder / "log"
    (folder / "beside_killed.py").write_text(MODULE)
    (folder / "flow.yml").write_text(KILLED.format(log=log, gate=folder / "gate", policy=policy))
    (folder / "answer").write_text(answer)
    return log


async def killed(folder: Path, log: Path, times: int = 1) -> None:
    """Run a process until the function has begun, and kill it."""
    process = child(folder)
    await until(lambda: len(counted(log)) == times)
    process.send_signal(signal.SIGKILL)
    process.wait(30)


@pytest.mark.process
async def test_killed_in_a_python_node_a_person_is_asked(tmp_path: Path) -> None:
    """Nobody knows how far it came: it does not run again unasked, and then with the same key."""
    log = prepare(tmp_path, "", "again")
    await killed(tmp_path, log)
    (tmp_path / "gate").touch()
    finish(tmp_path)
    assert asked(tmp_path) == {"work": 1}
    assert Counter(counted(log)) == {"session-0badcafe:work": 2}
    starts = [event for event in journal(tmp_path) if event.type == "node:started" and event.path == "work"]
    assert len(starts) == 2


@pytest.mark.process
async def test_killed_where_running_twice_does_no_harm(tmp_path: Path) -> None:
    """With `on_crash: again` it runs again at once, with the same key, and nobody is asked."""
    log = prepare(tmp_path, "on_crash: again,", "done")
    await killed(tmp_path, log)
    (tmp_path / "gate").touch()
    finish(tmp_path)
    assert asked(tmp_path) == {}
    assert Counter(counted(log)) == {"session-0badcafe:work": 2}
    assert (tmp_path / "ended").read_text() == "complete"
