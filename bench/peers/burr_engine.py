"""Burr with its SQLite persister, which writes the state after each action."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from burr.core import Application, ApplicationBuilder, State, action, expr
from burr.core.persistence import SQLitePersister

from bench.peers import KILLED_IN, STEPS_OF_KILLED, Steps, bytes_in, kill_myself, p99


def _persister(folder: Path) -> Any:
    persister = SQLitePersister(str(folder / "burr.db"), "bench")
    persister.initialize()
    return persister


def _built(builder: Any, persister: Any, app_id: str, start: str, state: dict[str, Any]) -> Application:
    """The application as its last action left it, or at its start."""
    return (  # type: ignore[no-any-return]
        builder.initialize_from(
            persister, resume_at_next_action=True, default_state=state, default_entrypoint=start
        )
        .with_state_persister(persister)
        .with_identifiers(app_id=app_id)
        .build()
    )


def _loop(
    persister: Any, count: int, done: Steps, before: Callable[[int], None] = lambda number: None
) -> Application:
    @action(reads=["number"], writes=["number"])
    def step(state: State) -> State:
        before(state["number"])
        done.step(f"n{state['number']}")
        return state.update(number=state["number"] + 1)

    builder = (
        ApplicationBuilder()
        .with_actions(step=step)
        .with_transitions(("step", "step", expr(f"number < {count}")))
    )
    return _built(builder, persister, "bench", "step", {"number": 0})


def _run(app: Application, until: Callable[[State], bool]) -> None:
    while not until(app.state):
        app.step()


def _asking(persister: Any, done: Steps, app_id: str) -> Application:
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

    builder = (
        ApplicationBuilder()
        .with_actions(before=before, question=question, after=after)
        .with_transitions(("before", "question"), ("question", "after"))
    )
    return _built(builder, persister, app_id, "before", {})


def _started(persister: Any, app_id: str) -> None:
    _asking(persister, Steps(), app_id).run(halt_before=["question"], inputs={"answer": ""})


def _answered(persister: Any, app_id: str, done: Steps) -> None:
    _asking(persister, done, app_id).run(halt_after=["after"], inputs={"answer": "Fine"})


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
    persister, taken = _persister(folder), []
    for run in range(count):
        begin = time.perf_counter()
        _started(persister, str(run))
        _answered(persister, str(run), Steps())
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
    builder = (
        ApplicationBuilder()
        .with_actions(first=first, second=second)
        .with_transitions(("first", "second"), ("second", "first", expr(f"item < {count}")))
    )
    app = _built(builder, _persister(folder), "bench", "first", {"item": 0, "outputs": []})
    _run(app, lambda state: state["item"] == until)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "done": len(done.done), "again": done.again, "bytes": bytes_in(folder)}


def items(folder: Path, count: int) -> dict[str, float]:
    """Two actions that go round with what they gave."""
    return _listed(folder, count, count * 9 // 10)


def items_rest(folder: Path, count: int) -> dict[str, float]:
    """Built anew from what was written."""
    return _listed(folder, count, count)


def paused(folder: Path, count: int) -> dict[str, float]:
    """One after the other."""
    persister = _persister(folder)
    begin = time.perf_counter()
    for run in range(count):
        _started(persister, str(run))
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "bytes": bytes_in(folder)}


def resume_one(folder: Path, count: int) -> dict[str, float]:
    """By its id."""
    done = Steps("after")
    _answered(_persister(folder), str(count // 2), done)
    return {"began": done.began, "again": done.again}


def crowd(folder: Path, count: int) -> dict[str, float]:
    """One after the other, as its persister has it; an answer waits for those before it."""
    persister, taken = _persister(folder), []
    begin = time.perf_counter()
    for run in range(count):
        _started(persister, str(run))
    answered = time.perf_counter()
    for run in range(count):
        _answered(persister, str(run), Steps())
        taken.append(time.perf_counter() - answered)
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
    """Built anew from what was written."""
    done = Steps(f"n{KILLED_IN}")
    _run(_loop(_persister(folder), STEPS_OF_KILLED, done), lambda state: state["number"] == STEPS_OF_KILLED)
    return {"began": done.began, "done": len(done.done), "again": done.again}
