"""LangGraph with its SQLite checkpointer and `durability="sync"`: a checkpoint after each node."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from bench.peers import KILLED_IN, STEPS_OF_KILLED, Steps, bytes_in, kill_myself, p99

IMPORTED = time.time()


class Count(TypedDict):
    """How many steps were done."""

    number: int


class Listed(TypedDict):
    """Where the list stands, and what its steps gave."""

    item: int
    outputs: Annotated[list[str], operator.add]


class Answered(TypedDict):
    """What the person said."""

    answer: str


def _config(name: str, steps: int = 100) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}, "recursion_limit": steps + 10}


def _saver(folder: Path) -> Any:
    return SqliteSaver.from_conn_string(str(folder / "langgraph.db"))


def _loop(count: int, steps: Steps, before: Callable[[int], None] = lambda number: None) -> StateGraph[Any]:
    def step(state: Count) -> Count:
        before(state["number"])
        steps.step(f"n{state['number']}")
        return {"number": state["number"] + 1}

    graph = StateGraph(Count)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda state: "step" if state["number"] < count else END)
    return graph


def _asking(steps: Steps) -> StateGraph[Any]:
    def before(state: Answered) -> Answered:
        steps.step("before")
        return {"answer": ""}

    def question(state: Answered) -> Answered:
        return {"answer": interrupt("How does it look?")}

    def after(state: Answered) -> Answered:
        steps.step("after")
        return {"answer": state["answer"]}

    graph = StateGraph(Answered)
    for name, work in (("before", before), ("question", question), ("after", after)):
        graph.add_node(name, work)
    graph.add_edge(START, "before")
    graph.add_edge("before", "question")
    graph.add_edge("question", "after")
    graph.add_edge("after", END)
    return graph


def steps(folder: Path, count: int) -> dict[str, float]:
    """A graph of one node that goes round."""
    done = Steps()
    with _saver(folder) as saver:
        graph = _loop(count, done).compile(checkpointer=saver)
        begin = time.perf_counter()
        graph.invoke({"number": 0}, _config("bench", count), durability="sync")
        seconds = time.perf_counter() - begin
    assert len(done.done) == count
    return {"seconds": seconds, "again": done.again}


def pauses(folder: Path, count: int) -> dict[str, float]:
    """The median of all runs."""
    taken = []
    with _saver(folder) as saver:
        graph = _asking(Steps()).compile(checkpointer=saver)
        for run in range(count):
            begin = time.perf_counter()
            graph.invoke({"answer": ""}, _config(str(run)), durability="sync")
            graph.invoke(Command(resume="Fine"), _config(str(run)), durability="sync")
            taken.append(time.perf_counter() - begin)
    return {"seconds": sorted(taken)[count // 2]}


def _list(count: int, done: Steps) -> StateGraph[Any]:
    def first(state: Listed) -> dict[str, Any]:
        if state["item"] == count * 9 // 10:
            interrupt("Go on?")
        done.step(f"a{state['item']}")
        return {"outputs": [f"a{state['item']}"]}

    def second(state: Listed) -> dict[str, Any]:
        done.step(f"b{state['item']}")
        return {"item": state["item"] + 1, "outputs": [f"b{state['item']}"]}

    graph = StateGraph(Listed)
    graph.add_node("a", first)
    graph.add_node("b", second)
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    graph.add_conditional_edges("b", lambda state: "a" if state["item"] < count else END)
    return graph


def _listed(folder: Path, count: int, given: Any) -> dict[str, float]:
    done = Steps()
    with _saver(folder) as saver:
        begin = time.perf_counter()
        graph = _list(count, done).compile(checkpointer=saver)
        graph.invoke(given, _config("bench", 3 * count), durability="sync")
        seconds = time.perf_counter() - begin
    return {"seconds": seconds, "done": len(done.done), "again": done.again, "bytes": bytes_in(folder)}


def items(folder: Path, count: int) -> dict[str, float]:
    """A graph that goes round with what the steps gave."""
    return _listed(folder, count, {"item": 0, "outputs": []})


def items_rest(folder: Path, count: int) -> dict[str, float]:
    """The person continues with it."""
    return _listed(folder, count, Command(resume="yes"))


def paused(folder: Path, count: int) -> dict[str, float]:
    """One after the other."""
    with _saver(folder) as saver:
        graph = _asking(Steps()).compile(checkpointer=saver)
        begin = time.perf_counter()
        for run in range(count):
            graph.invoke({"answer": ""}, _config(str(run)), durability="sync")
        seconds = time.perf_counter() - begin
    return {"seconds": seconds, "bytes": bytes_in(folder)}


def resume_one(folder: Path, count: int) -> dict[str, float]:
    """By its thread."""
    done = Steps("after")
    with _saver(folder) as saver:
        graph = _asking(done).compile(checkpointer=saver)
        graph.invoke(Command(resume="Fine"), _config(str(count // 2)), durability="sync")
    return {"began": done.began, "again": done.again}


def crowd(folder: Path, count: int) -> dict[str, float]:
    """All in one event loop."""
    return asyncio.run(_crowd(folder, count))


async def _crowd(folder: Path, count: int) -> dict[str, float]:
    async with AsyncSqliteSaver.from_conn_string(str(folder / "langgraph.db")) as saver:
        graph = _asking(Steps()).compile(checkpointer=saver)

        async def started(run: int) -> None:
            await graph.ainvoke({"answer": ""}, _config(str(run)), durability="sync")

        async def answered(run: int) -> float:
            await graph.ainvoke(Command(resume="Fine"), _config(str(run)), durability="sync")
            return time.perf_counter()

        await started(-1)
        await answered(-1)
        begin = time.perf_counter()
        await asyncio.gather(*(started(run) for run in range(count)))
        all_answer = time.perf_counter()
        ended = await asyncio.gather(*(answered(run) for run in range(count)))
        taken = [each - all_answer for each in ended]
        return {"seconds": time.perf_counter() - begin, "p99": p99(taken)}


def killed(folder: Path, count: int) -> dict[str, float]:
    """Killed inside the node."""
    with _saver(folder) as saver:
        graph = _loop(
            STEPS_OF_KILLED, Steps(), lambda number: kill_myself() if number == KILLED_IN else None
        ).compile(checkpointer=saver)
        graph.invoke({"number": 0}, _config("bench", STEPS_OF_KILLED), durability="sync")
    return {}


def recover(folder: Path, count: int) -> dict[str, float]:
    """Invoked again without input."""
    done = Steps(f"n{KILLED_IN}")
    with _saver(folder) as saver:
        graph = _loop(STEPS_OF_KILLED, done).compile(checkpointer=saver)
        graph.invoke(None, _config("bench", STEPS_OF_KILLED), durability="sync")
    return {"began": done.began, "done": len(done.done), "again": done.again}
