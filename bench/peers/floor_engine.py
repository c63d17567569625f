"""The floor: the same facts, stored with plain SQLite: one row for each of them, nothing decided and nothing checked."""

from __future__ import annotations

import time
from pathlib import Path

import apsw

from bench.peers import KILLED_IN, bytes_in, kill_myself, p99

IMPORTED = time.time()

ROW = b"\xa5" * 300
"""What is stored of a step: some hundred bytes, as all engines have it."""


def _open(folder: Path) -> apsw.Connection:
    db = apsw.Connection(str(folder / "floor.db"))
    for name, value in (("journal_mode", "WAL"), ("synchronous", "FULL")):
        db.pragma(name, value)
    db.execute("CREATE TABLE IF NOT EXISTS facts (id INTEGER PRIMARY KEY, run INTEGER, body BLOB)")
    db.execute("CREATE INDEX IF NOT EXISTS runs ON facts (run, id)")
    return db


def _store(db: apsw.Connection, run: int, facts: int = 1) -> None:
    """So many facts, each durable before the next."""
    for _ in range(facts):
        db.execute("INSERT INTO facts (run, body) VALUES (?, ?)", (run, ROW))


def _last(db: apsw.Connection, run: int) -> int:
    row = db.execute("SELECT count(*), max(id) FROM facts WHERE run = ?", (run,)).fetchone()
    assert row is not None
    return int(str(row[0]))


def steps(folder: Path, count: int) -> dict[str, float]:
    """A fact a step."""
    db = _open(folder)
    begin = time.perf_counter()
    _store(db, 1, count)
    return {"seconds": time.perf_counter() - begin}


python_steps = steps


def pauses(folder: Path, count: int) -> dict[str, float]:
    """Five facts a run: it began, waits, was answered, its next step begins, it ended."""
    db, taken = _open(folder), []
    for run in range(count):
        begin = time.perf_counter()
        _store(db, run, 5)
        taken.append(time.perf_counter() - begin)
    return {"seconds": sorted(taken)[count // 2]}


def items(folder: Path, count: int) -> dict[str, float]:
    """Two facts an item."""
    db = _open(folder)
    begin = time.perf_counter()
    _store(db, 1, 2 * (count * 9 // 10))
    return {"seconds": time.perf_counter() - begin}


def items_rest(folder: Path, count: int) -> dict[str, float]:
    """The rest of them."""
    begin = time.perf_counter()
    db = _open(folder)
    _store(db, 1, 2 * count - _last(db, 1))
    return {"seconds": time.perf_counter() - begin, "bytes": bytes_in(folder)}


def paused(folder: Path, count: int) -> dict[str, float]:
    """Two facts a run."""
    db = _open(folder)
    begin = time.perf_counter()
    for run in range(count):
        _store(db, run, 2)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "bytes": bytes_in(folder)}


def resume_one(folder: Path, count: int) -> dict[str, float]:
    """Read how a run stands, and store its answer and that its next step begins."""
    db = _open(folder)
    assert _last(db, count // 2) == 2
    _store(db, count // 2, 2)
    return {"began": time.time()}


def crowd(folder: Path, count: int) -> dict[str, float]:
    """Five facts a run, each run after the other; and as a group, in five transactions for all."""
    db, taken = _open(folder), []
    begin = time.perf_counter()
    for run in range(count):
        _store(db, run, 2)
    answered = time.perf_counter()
    for run in range(count):
        _store(db, run, 3)
        taken.append(time.perf_counter() - answered)
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    for _ in range(5):
        with db:
            for run in range(count):
                _store(db, run)
    return {"seconds": seconds, "p99": p99(taken), "grouped": time.perf_counter() - begin}


def killed(folder: Path, count: int) -> dict[str, float]:
    """A fact a step, until the process is killed."""
    _store(_open(folder), 1, KILLED_IN)
    kill_myself()
    return {}


def recover(folder: Path, count: int) -> dict[str, float]:
    """Read where it was."""
    db = _open(folder)
    assert _last(db, 1) == KILLED_IN
    _store(db, 1)
    return {"began": time.time()}
