"""sayso, as a program embeds it: `Runtime` with its defaults, and steps that are nodes of a type of the program's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bench.peers import KILLED_IN, STEPS_OF_KILLED, Steps, bytes_in, kill_myself, p99
from engine import Actor, Flow, Runtime, node

IMPORTED = time.time()

ANA = Actor.local("ana")
PAUSE = """
flow: pause
nodes:
  - {id: before, type: step, with: {name: before}}
  - {id: question, type: ask, with: {message: "How does it look?"}}
  - {id: after, type: step, with: {name: after}}
"""
ITEMS = """
flow: items
limits: {{max_node_runs: 100000}}
nodes:
  - id: each
    type: foreach
    with: {{items: "{{{{ range({0}) | list }}}}"}}
    body:
      - {{id: a, type: step, with: {{name: "a{{{{ item }}}}"}}}}
      - {{id: b, type: step, with: {{name: "b{{{{ item }}}}"}}}}
"""
STEP = "  - {{id: n{0}, type: step, with: {{name: n{0}}}}}\n"
PYTHON = "  - {{id: n{0}, type: python, with: {{call: 'bench.peers.sayso_engine:added', args: {{a: {0}, b: 1}}}}, on_crash: again}}\n"
SESSION = "session-bench"

_steps = Steps()
_stop_at: tuple[str, Callable[[], None]] | None = None


@node("step", on_crash="again")
async def step(name: str) -> str:
    """Does nothing, and is counted."""
    if _stop_at is not None and name == _stop_at[0]:
        _stop_at[1]()
    _steps.step(name)
    return name


def added(a: int, b: int) -> int:
    """What the `python` nodes call."""
    return a + b


def _flow(text: str) -> Flow:
    from engine import load_flow  # a process that takes up what is stored reads no file

    return load_flow(text)


def _linear(line: str, count: int) -> Flow:
    nodes = "".join(line.format(index) for index in range(count))
    return _flow(f"flow: linear\nlimits: {{max_node_runs: 100000}}\nnodes:\n{nodes}")


def _runtime(folder: Path) -> Runtime:
    return Runtime(f"sqlite:///{folder.resolve()}/sayso.db")


def _run(work: Coroutine[Any, Any, dict[str, float]]) -> dict[str, float]:
    return asyncio.run(work)


def steps(folder: Path, count: int) -> dict[str, float]:
    """A chain of nodes."""
    return _run(_chain(folder, _linear(STEP, count), count))


def python_steps(folder: Path, count: int) -> dict[str, float]:
    """A chain of `python` nodes."""
    return _run(_chain(folder, _linear(PYTHON, count), 0))


async def _chain(folder: Path, flow: Flow, count: int) -> dict[str, float]:
    async with _runtime(folder) as runtime:
        begin = time.perf_counter()
        session = await (await runtime.start(flow, actor=ANA)).ended()
        seconds = time.perf_counter() - begin
        assert session.status == "complete", session.error
        assert len(_steps.done) == count
        return {"seconds": seconds, "again": _steps.again}


def pauses(folder: Path, count: int) -> dict[str, float]:
    """The median of all runs."""
    return _run(_pauses(folder, count))


async def _pauses(folder: Path, count: int) -> dict[str, float]:
    flow, taken = _flow(PAUSE), []
    async with _runtime(folder) as runtime:
        for _ in range(count):
            begin = time.perf_counter()
            session = await (await runtime.start(flow, actor=ANA)).rest()
            await session.answer("Fine", actor=ANA)
            assert (await session.ended()).status == "complete"
            taken.append(time.perf_counter() - begin)
    return {"seconds": sorted(taken)[count // 2]}


def items(folder: Path, count: int) -> dict[str, float]:
    """A `foreach`; a person pauses it."""
    return _run(_items(folder, count))


async def _items(folder: Path, count: int) -> dict[str, float]:
    global _stop_at
    there = asyncio.Event()
    _stop_at = (f"a{count * 9 // 10}", there.set)
    async with _runtime(folder) as runtime:
        begin = time.perf_counter()
        session = await runtime.start(_flow(ITEMS.format(count)), actor=ANA, session_id=SESSION)
        await there.wait()
        await session.pause(actor=ANA)
        assert (await session.rest()).status == "paused"
        return {"seconds": time.perf_counter() - begin, "done": len(_steps.done), "again": _steps.again}


def items_rest(folder: Path, count: int) -> dict[str, float]:
    """The person continues with it."""
    return _run(_items_rest(folder, count))


async def _items_rest(folder: Path, count: int) -> dict[str, float]:
    begin = time.perf_counter()
    async with _runtime(folder) as runtime:
        session = await runtime.session(SESSION)
        await session.resume("go on", actor=ANA)
        assert (await session.ended()).status == "complete", session.error
        seconds = time.perf_counter() - begin
    return {"seconds": seconds, "done": len(_steps.done), "again": _steps.again, "bytes": bytes_in(folder)}


def paused(folder: Path, count: int) -> dict[str, float]:
    """One after the other."""
    return _run(_paused(folder, count))


async def _paused(folder: Path, count: int) -> dict[str, float]:
    flow = _flow(PAUSE)
    async with _runtime(folder) as runtime:
        begin = time.perf_counter()
        for run in range(count):
            session = await runtime.start(flow, actor=ANA, session_id=f"{SESSION}{run}")
            assert (await session.rest()).status == "paused"
        seconds = time.perf_counter() - begin
    return {"seconds": seconds, "bytes": bytes_in(folder)}


def resume_one(folder: Path, count: int) -> dict[str, float]:
    """By its id."""
    return _run(_resume_one(folder, count))


async def _resume_one(folder: Path, count: int) -> dict[str, float]:
    _steps.awaited = "after"
    async with _runtime(folder) as runtime:
        session = await runtime.session(f"{SESSION}{count // 2}")
        await session.answer("Fine", actor=ANA)
        assert (await session.ended()).status == "complete"
    return {"began": _steps.began, "again": _steps.again}


def crowd(folder: Path, count: int) -> dict[str, float]:
    """All in one event loop."""
    return _run(_crowd(folder, count))


async def _crowd(folder: Path, count: int) -> dict[str, float]:
    flow = _flow(PAUSE)
    async with _runtime(folder) as runtime:

        async def begun() -> Any:
            return await (await runtime.start(flow, actor=ANA)).rest()

        async def answered(session: Any) -> float:
            await session.answer("Fine", actor=ANA)
            assert (await session.ended()).status == "complete"
            return time.perf_counter()

        await answered(await begun())
        begin = time.perf_counter()
        sessions = await asyncio.gather(*(begun() for _ in range(count)))
        all_answer = time.perf_counter()
        ended = await asyncio.gather(*(answered(session) for session in sessions))
        taken = [each - all_answer for each in ended]
        return {"seconds": time.perf_counter() - begin, "p99": p99(taken)}


def killed(folder: Path, count: int) -> dict[str, float]:
    """Killed inside the node."""
    global _stop_at
    _stop_at = (f"n{KILLED_IN}", kill_myself)
    return _run(_killed(folder))


async def _killed(folder: Path) -> dict[str, float]:
    async with _runtime(folder) as runtime:
        flow = _linear(STEP, STEPS_OF_KILLED)
        await (await runtime.start(flow, actor=ANA, session_id=SESSION)).ended()
    return {}


def recover(folder: Path, count: int) -> dict[str, float]:
    """The runtime takes it up by itself."""
    return _run(_recover(folder))


async def _recover(folder: Path) -> dict[str, float]:
    _steps.awaited = f"n{KILLED_IN}"
    async with _runtime(folder) as runtime:
        session = await runtime.session(SESSION)
        assert (await session.ended()).status == "complete", session.error
    return {"began": _steps.began, "done": len(_steps.done), "again": _steps.again}
