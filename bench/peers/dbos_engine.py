"""DBOS over SQLite: workflows of steps, which wait for messages. They are looked for every 5 ms, instead of every second, and
the database is made in WAL beforehand, since DBOS leaves it as it is."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID

from bench.peers import KILLED_IN, STEPS_OF_KILLED, Steps, bytes_in, kill_myself, p99

IMPORTED = time.time()

WAIT_SECONDS = 600
_steps = Steps()
_stop_at: int | None = None


@DBOS.step()
def step(name: str) -> str:
    """Does nothing, and is counted."""
    _steps.step(name)
    return name


@DBOS.workflow()
def chain(count: int) -> None:
    """So many steps."""
    for number in range(count):
        if number == _stop_at:
            kill_myself()
        step(f"n{number}")


@DBOS.workflow()
def asking() -> None:
    """A step, a question, its answer, a step."""
    step("before")
    DBOS.set_event("asks", True)
    DBOS.recv(timeout_seconds=WAIT_SECONDS)
    step("after")


@DBOS.workflow()
def listed(count: int) -> list[str]:
    """Two steps an item."""
    outputs = []
    for item in range(count):
        if item == count * 9 // 10:
            DBOS.set_event("asks", True)
            DBOS.recv(timeout_seconds=WAIT_SECONDS)
        outputs += [step(f"a{item}"), step(f"b{item}")]
    return outputs


def _launch(folder: Path) -> None:
    database = folder.resolve() / "dbos.db"
    sqlite3.connect(database).execute("PRAGMA journal_mode=WAL")
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": f"sqlite:///{database}",
        "log_level": "CRITICAL",
        "run_admin_server": False,
        "notification_listener_polling_interval_sec": 0.005,
    }
    DBOS(config=config)
    DBOS.launch()


def _started(name: str) -> Any:
    with SetWorkflowID(name):
        return DBOS.start_workflow(asking)


def _asks(name: str) -> None:
    DBOS.get_event(name, "asks", timeout_seconds=WAIT_SECONDS)


def steps(folder: Path, count: int) -> dict[str, float]:
    """A workflow of steps."""
    _launch(folder)
    begin = time.perf_counter()
    chain(count)
    seconds = time.perf_counter() - begin
    assert len(_steps.done) == count
    return {"seconds": seconds, "again": _steps.again}


def pauses(folder: Path, count: int) -> dict[str, float]:
    """The median of all runs."""
    _launch(folder)
    taken = []
    for run in range(count):
        begin = time.perf_counter()
        handle = _started(str(run))
        _asks(str(run))
        DBOS.send(str(run), "Fine")
        handle.get_result()
        taken.append(time.perf_counter() - begin)
    return {"seconds": sorted(taken)[count // 2]}


def items(folder: Path, count: int) -> dict[str, float]:
    """Until it waits for its message."""
    _launch(folder)
    begin = time.perf_counter()
    with SetWorkflowID("bench"):
        DBOS.start_workflow(listed, count)
    _asks("bench")
    return {"seconds": time.perf_counter() - begin, "done": len(_steps.done), "again": _steps.again}


def items_rest(folder: Path, count: int) -> dict[str, float]:
    """Taken up by itself."""
    begin = time.perf_counter()
    _launch(folder)
    DBOS.send("bench", "yes")
    DBOS.retrieve_workflow("bench").get_result()
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "done": len(_steps.done), "again": _steps.again, "bytes": bytes_in(folder)}


def paused(folder: Path, count: int) -> dict[str, float]:
    """Each waits in a thread of its own."""
    _launch(folder)
    begin = time.perf_counter()
    for run in range(count):
        _started(str(run))
        _asks(str(run))
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "bytes": bytes_in(folder)}


def resume_one(folder: Path, count: int) -> dict[str, float]:
    """All are taken up."""
    _steps.awaited = "after"
    _launch(folder)
    DBOS.send(str(count // 2), "Fine")
    DBOS.retrieve_workflow(str(count // 2)).get_result()
    return {"began": _steps.began, "again": _steps.again}


def crowd(folder: Path, count: int) -> dict[str, float]:
    """All in threads of its own."""
    _launch(folder)
    begin = time.perf_counter()
    handles = [_started(str(run)) for run in range(count)]
    for run in range(count):
        _asks(str(run))
    answered, taken = time.perf_counter(), []
    for run in range(count):
        DBOS.send(str(run), "Fine")
    for handle in handles:
        handle.get_result()
        taken.append(time.perf_counter() - answered)
    return {"seconds": time.perf_counter() - begin, "p99": p99(taken)}


def killed(folder: Path, count: int) -> dict[str, float]:
    """Killed before the step."""
    global _stop_at
    _stop_at = KILLED_IN
    _launch(folder)
    with SetWorkflowID("bench"):
        chain(STEPS_OF_KILLED)
    return {}


def recover(folder: Path, count: int) -> dict[str, float]:
    """Taken up by itself."""
    _steps.awaited = f"n{KILLED_IN}"
    _launch(folder)
    DBOS.retrieve_workflow("bench").get_result()
    return {"began": _steps.began, "done": len(_steps.done), "again": _steps.again}
