"""Burr with its SQLite persisters, which write the state after each action: in WAL, each graph built once, and an application
kept in memory where the process that asked also answers. A crowd has the asynchronous persister, whose one connection
commits for all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from burr.core import Application, ApplicationBuilder, Graph, GraphBuilder, State, action, expr
from burr.core.persistence import SQLitePersister
from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister

from bench.peers import KILLED_IN, STEPS_OF_KILLED, Steps, bytes_in, kill_myself, p99

IMPORTED = time.time()
WAL = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL")


def _persister(folder: Path) -> Any:
    persister = SQLitePersister.from_values(str(folder / "burr.db"), "bench")
    for pragma in WAL:
        persister.connection.execute(pragma)
    persister.initialize()
    return persister


def _builder(graph: Graph, persister: Any, app_id: str, start: str, state: dict[str, Any]) -> Any:
    """A builder of the application as its last action left it, or at its start."""
    return (
        ApplicationBuilder()
        .with_graph(graph)
        .initialize_from(persister, resume_at_next_action=True, default_state=state, default_entrypoint=start)
        .with_state_persister(persister)
        .with_identifiers(app_id=app_id)
    )


def _loop(
    persister: Any, count: int, done: Steps, before: Callable[[int], None] = lambda number: None
) -> Application:
    @action(reads=["number"], writes=["number"])
    def step(state: State) -> State:
        before(state["number"])
        done.step(f"n{state['number']}")
        return state.update(number=state["number"] + 1)

    condition = expr(f"number < {count}")
    graph = GraphBuilder().with_actions(step=step).with_transitions(("step", "step", condition)).build()
    return _builder(graph, persister, "bench", "step", {"number": 0}).build()  # type: ignore[no-any-return]


def _run(app: Application, until: Callable[[State], bool]) -> None:
    while not until(app.state):
        app.step()


def _asking(done: Steps) -> Graph:
    @action(reads=[], writes=["asked"])
    def before(state: State) -> State:
        done.step("before")
        return state.update(asked=True)

    @action(reads=[], writes=["answer"])
    def question(state: State, answer: str) -> State:
        return state.update(answer=answer)

    @action(reads=["answer"], writes=["done"])
    def after(state: State) -> State:
        done.step("after")
        return state.update(done=True)

    return _asked(before, question, after)


def _asking_at_once(done: Steps) -> Graph:
    """The same of coroutines, as an application wants them that is run with `arun`."""

    @action(reads=[], writes=["asked"])
    async def before(state: State) -> State:
        done.step("before")
        return state.update(asked=True)

    @action(reads=[], writes=["answer"])
    async def question(state: State, answer: str) -> State:
        return state.update(answer=answer)

    @action(reads=["answer"], writes=["done"])
    async def after(state: State) -> State:
        done.step("after")
        return state.update(done=True)

    return _asked(before, question, after)


def _asked(before: Any, question: Any, after: Any) -> Graph:
    builder = GraphBuilder().with_actions(before=before, question=question, after=after)
    return builder.with_transitions(("before", "question"), ("question", "after")).build()


def _started(graph: Graph, persister: Any, app_id: str) -> Application:
    app = _builder(graph, persister, app_id, "before", {}).build()
    app.run(halt_before=["question"], inputs={"answer": ""})
    return app  # type: ignore[no-any-return]


def _answered(app: Application) -> None:
    app.run(halt_after=["after"], inputs={"answer": "Fine"})


def steps(folder: Path, count: int) -> dict[str, float]:
    """An application of one action that follows itself."""
    done = Steps()
    app = _loop(_persister(folder), count, done)
    begin = time.perf_counter()
    _run(app, lambda state: state["number"] == count)
    seconds = time.perf_counter() - begin
    assert len(done.done) == count
    return {"seconds": seconds, "again": done.again}


def pauses(folder: Path, count: int) -> dict[str, float]:
    """The median of all runs."""
    graph, persister, taken = _asking(Steps()), _persister(folder), []
    for run in range(count):
        begin = time.perf_counter()
        _answered(_started(graph, persister, str(run)))
        taken.append(time.perf_counter() - begin)
    return {"seconds": sorted(taken)[count // 2]}


def _listed(folder: Path, count: int, until: int) -> dict[str, float]:
    done = Steps()

    @action(reads=["item", "outputs"], writes=["outputs"])
    def first(state: State) -> State:
        done.step(f"a{state['item']}")
        return state.append(outputs=f"a{state['item']}")

    @action(reads=["item", "outputs"], writes=["item", "outputs"])
    def second(state: State) -> State:
        done.step(f"b{state['item']}")
        return state.append(outputs=f"b{state['item']}").update(item=state["item"] + 1)

    begin = time.perf_counter()
    builder = GraphBuilder().with_actions(first=first, second=second)
    transitions = (("first", "second"), ("second", "first", expr(f"item < {count}")))
    graph = builder.with_transitions(*transitions).build()
    app = _builder(graph, _persister(folder), "bench", "first", {"item": 0, "outputs": []}).build()
    _run(app, lambda state: state["item"] == until)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "done": len(done.done), "again": done.again, "bytes": bytes_in(folder)}


def items(folder: Path, count: int) -> dict[str, float]:
    """Two actions that go round with what they gave."""
    return _listed(folder, count, count * 9 // 10)


def items_rest(folder: Path, count: int) -> dict[str, float]:
    """Built again from what was written."""
    return _listed(folder, count, count)


def paused(folder: Path, count: int) -> dict[str, float]:
    """One after the other."""
    graph, persister = _asking(Steps()), _persister(folder)
    begin = time.perf_counter()
    for run in range(count):
        _started(graph, persister, str(run))
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "bytes": bytes_in(folder)}


def resume_one(folder: Path, count: int) -> dict[str, float]:
    """By its id."""
    done = Steps("after")
    _answered(_builder(_asking(done), _persister(folder), str(count // 2), "before", {}).build())
    return {"began": done.began, "again": done.again}


def crowd(folder: Path, count: int) -> dict[str, float]:
    """All in one event loop."""
    return asyncio.run(_crowd(folder, count))


async def _crowd(folder: Path, count: int) -> dict[str, float]:
    graph = _asking_at_once(Steps())
    async with AsyncSQLitePersister.from_values(str(folder / "burr.db"), "bench") as persister:
        for pragma in WAL:
            await persister.connection.execute(pragma)
        await persister.initialize()

        async def started(run: int) -> Any:
            app = await _builder(graph, persister, str(run), "before", {}).abuild()
            await app.arun(halt_before=["question"], inputs={"answer": ""})
            return app

        async def answered(app: Any) -> float:
            await app.arun(halt_after=["after"], inputs={"answer": "Fine"})
            return time.perf_counter()

        await answered(await started(-1))
        begin = time.perf_counter()
        apps = await asyncio.gather(*(started(run) for run in range(count)))
        all_answer = time.perf_counter()
        ended = await asyncio.gather(*(answered(app) for app in apps))
        taken = [each - all_answer for each in ended]
        return {"seconds": time.perf_counter() - begin, "p99": p99(taken)}


def killed(folder: Path, count: int) -> dict[str, float]:
    """Killed inside the action."""
    persister = _persister(folder)
    app = _loop(
        persister, STEPS_OF_KILLED, Steps(), lambda number: kill_myself() if number == KILLED_IN else None
    )
    _run(app, lambda state: state["number"] == STEPS_OF_KILLED)
    return {}


def recover(folder: Path, count: int) -> dict[str, float]:
    """Built again from what was written."""
    done = Steps(f"n{KILLED_IN}")
    _run(_loop(_persister(folder), STEPS_OF_KILLED, done), lambda state: state["number"] == STEPS_OF_KILLED)
    return {"began": done.began, "done": len(done.done), "again": done.again}
