"""The same work in sayso, in three other engines, and in plain SQLite, each in processes of its own.

Each engine is a module with the functions of `WORKLOADS`; one that it lacks is left out of the table. Each is called
alone in a new process, `python -m bench.peers ENGINE WORKLOAD FOLDER COUNT`, which imports the engine first, does the work
on a database in the folder, and prints what it measured as JSON. What a workload calls a step is counted outside of the
engine: a step that had completed and ran again is said in the table.

All engines store each step durably before the next one begins, in SQLite with WAL and `synchronous=FULL` where the
engine lets one choose. The floor is what a program needs that stores the same facts with plain SQLite, and nothing else.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ENGINES = ("floor", "sayso", "langgraph", "dbos", "burr")
TITLES = {"floor": "floor", "sayso": "sayso", "langgraph": "LangGraph", "dbos": "DBOS", "burr": "Burr"}

WORKLOADS = {
    "steps": "one run of so many durable steps that do nothing",
    "python_steps": "the same with `python` nodes",
    "pauses": "so many runs, one after the other: a step, a question, its answer, a step",
    "items": "a list of so many items with two steps each, paused at 90 %",
    "items_rest": "in a new process: the rest of that list",
    "paused": "so many runs that wait at their question",
    "resume_one": "in a new process: one of them is answered, until its next step",
    "crowd": "so many runs at once, and then all their answers at once",
    "killed": "a run of 200 steps whose process is killed in step 150",
    "recover": "in a new process: that run, until the step that was cut runs again",
}
KILLED_IN = 150
STEPS_OF_KILLED = 200


class Steps:
    """What a run's steps did outside of the engine: how many there were, which ran again, and when the awaited one began."""

    def __init__(self, awaited: str = "") -> None:
        self.done: dict[str, int] = {}
        self.awaited = awaited
        self.began = 0.0

    def step(self, name: str) -> None:
        """Carry out a step, at once."""
        if name == self.awaited and not self.began:
            self.began = time.time()
        self.done[name] = self.done.get(name, 0) + 1

    @property
    def again(self) -> int:
        """How many steps ran a second time."""
        return sum(self.done.values()) - len(self.done)


def kill_myself() -> None:
    """End this process as a power loss would."""
    sys.stdout.flush()
    os.kill(os.getpid(), 9)


def bytes_in(folder: Path) -> int:
    """Bytes of all files of an engine."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def p99(seconds: Sequence[float]) -> float:
    """The time that 99 in 100 do not exceed."""
    ordered = sorted(seconds)
    return ordered[max(0, -(-len(ordered) * 99 // 100) - 1)]
