"""The same long list in other engines, where they are installed: `pip install -c constraints.txt -e ".[bench]"`.

Each carries out two steps an item, every step durable in SQLite before the next one, waits for a person at 90 % of the
items, is set up anew from its database, and goes on. Steps are counted outside of the engine; what was carried out more
often than once is said. What is not installed is left out with a word. Each runs in a process of its own, which ends when
the work is done, whatever threads the engine keeps (DBOS waits for its message to the end of that time).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

from bench.nodes import folder_in
from bench.report import Row

ITEMS = 1000


class Place(TypedDict):
    """Where the list stands."""

    item: int


@dataclass(frozen=True)
class Other:
    """One engine: what it needs to be installed, and how it does the work."""

    name: str
    needs: tuple[str, ...]
    work: Callable[[Path, int, Counter[str]], None]


def measure(base: Path, *, quick: bool) -> list[Row]:
    """A row for each engine."""
    return [row for other in OTHERS for row in _rows(other, base, 100 if quick else ITEMS)]


def _rows(other: Other, base: Path, items: int) -> Iterator[Row]:
    missing = [name for name in other.needs if not _there(name)]
    name = f"{other.name}: {items:,} × 2"
    if missing:
        print(f"{other.name} is skipped: {', '.join(missing)} is not installed;", end=" ", file=sys.stderr)
        return
    with folder_in(base) as folder:
        command = [sys.executable, "-m", "bench.others", other.name, str(folder), str(items)]
        told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    assert told["steps"] == 2 * items, f"{other.name} carried out {told['steps']} steps"
    yield Row(f"{name}: total", told["seconds"], "s", note=f"{told['again']} steps ran again")
    yield Row(f"{name}: on disk", size / items, "bytes/item")


def _there(name: str) -> bool:
    with contextlib.suppress(ModuleNotFoundError):
        return find_spec(name) is not None
    return False


# --- LangGraph -------------------------------------------------------------------------------------------


def langgraph(folder: Path, items: int, done: Counter[str]) -> None:
    """A graph that goes round and round, with the SQLite checkpointer and `durability="sync"`."""
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Command, interrupt

    def first(state: dict[str, Any]) -> dict[str, Any]:
        if state["item"] == items * 9 // 10:
            interrupt("Go on?")
        done[f"a{state['item']}"] += 1
        return {"item": state["item"]}

    def second(state: dict[str, Any]) -> dict[str, Any]:
        done[f"b{state['item']}"] += 1
        return {"item": state["item"] + 1}

    graph = StateGraph(Place)
    graph.add_node("a", first)
    graph.add_node("b", second)
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    graph.add_conditional_edges("b", lambda state: "a" if state["item"] < items else END)
    config = {"configurable": {"thread_id": "bench"}, "recursion_limit": 3 * items}
    for given in ({"item": 0}, Command(resume="yes")):
        with SqliteSaver.from_conn_string(str(folder / "langgraph.db")) as saver:
            graph.compile(checkpointer=saver).invoke(given, config, durability="sync")


# --- Burr ------------------------------------------------------------------------------------------------


def burr(folder: Path, items: int, done: Counter[str]) -> None:
    """An application of two actions with the SQLite persister, which writes the state after each of them."""
    from burr.core import ApplicationBuilder, State, action, expr
    from burr.core.persistence import SQLitePersister

    @action(reads=["item"], writes=["item"])
    def first(state: State) -> State:
        done[f"a{state['item']}"] += 1
        return state.update(item=state["item"])

    @action(reads=["item"], writes=["item"])
    def second(state: State) -> State:
        done[f"b{state['item']}"] += 1
        return state.update(item=state["item"] + 1)

    @action(reads=[], writes=[])
    def end(state: State) -> State:
        return state

    for until in (items * 9 // 10, items):
        persister = SQLitePersister(str(folder / "burr.db"), "bench")
        persister.initialize()
        app = (
            ApplicationBuilder()
            .with_actions(first=first, second=second, end=end)
            .with_transitions(
                ("first", "second"), ("second", "first", expr(f"item < {items}")), ("second", "end")
            )
            .initialize_from(
                persister, resume_at_next_action=True, default_state={"item": 0}, default_entrypoint="first"
            )
            .with_state_persister(persister)
            .with_identifiers(app_id="bench")
            .build()
        )
        while app.state["item"] < until:
            app.step()
        persister.connection.close()


# --- DBOS ------------------------------------------------------------------------------------------------


def dbos(folder: Path, items: int, done: Counter[str]) -> None:
    """A workflow of steps over SQLite that waits for a message."""
    from dbos import DBOS, DBOSConfig, SetWorkflowID

    def set_up() -> Any:
        config: DBOSConfig = {
            "name": "bench",
            "system_database_url": f"sqlite:///{folder / 'dbos.db'}",
            "log_level": "CRITICAL",
            "run_admin_server": False,
        }
        DBOS(config=config)

        @DBOS.step()
        def step(name: str) -> None:
            done[name] += 1

        @DBOS.workflow()
        def work(count: int) -> None:
            for item in range(count):
                if item == count * 9 // 10:
                    DBOS.set_event("waits", True)
                    DBOS.recv(timeout_seconds=600)
                step(f"a{item}")
                step(f"b{item}")

        DBOS.launch()
        return work

    work = set_up()
    with SetWorkflowID("bench"):
        DBOS.start_workflow(work, items)
    DBOS.get_event("bench", "waits", timeout_seconds=600)
    DBOS.destroy()
    set_up()
    DBOS.send("bench", "yes")
    DBOS.retrieve_workflow("bench").get_result()
    DBOS.destroy()


OTHERS = (
    Other("LangGraph", ("langgraph.graph", "langgraph.checkpoint.sqlite"), langgraph),
    Other("Burr", ("burr.core", "burr.core.persistence"), burr),
    Other("DBOS", ("dbos",), dbos),
)


def _work(name: str, folder: Path, items: int) -> None:
    """Let one engine work in this process, tell what it did, and end, whatever threads it left behind."""
    done: Counter[str] = Counter()
    (other,) = [one for one in OTHERS if one.name == name]
    for module in other.needs:
        import_module(module)
    begin = time.perf_counter()
    other.work(folder, items, done)
    seconds = time.perf_counter() - begin
    told = {"seconds": seconds, "steps": len(done), "again": done.total() - len(done)}
    print(json.dumps(told), flush=True)
    os._exit(0)


if __name__ == "__main__":
    _work(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
