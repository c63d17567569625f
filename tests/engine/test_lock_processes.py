"""Locks between processes: a race has one winner, and a kill -9 anywhere neither frees a lock nor loses it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

from engine.storage.sqlite import open_sqlite
from tests.support import prefork
from tests.support.engine import counted, until
from tests.support.proving import sampled

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]
FLOW = """
flow: locked
inputs: {{who: {{type: string}}}}
lock: "one"
nodes:
  - {{id: enter, type: shell, on_crash: again, with: {{script: 'echo "$WHO" >> "$LOG"', env: {{WHO: "{{{{ inputs.who }}}}", LOG: "{log}"}}}}}}
  - {{id: leave, type: shell, on_crash: again, with: {{script: 'echo "$WHO" >> "$LOG"', env: {{WHO: "{{{{ inputs.who }}}}", LOG: "{log}"}}}}}}
"""


def prepare(folder: Path) -> Path:
    """A folder for children; returns the file in which each node of each session writes its line."""
    folder.mkdir(exist_ok=True)
    log = folder / "log"
    (folder / "flow.yml").write_text(FLOW.format(log=log))
    return log


def child(folder: Path, session_id: str, point: str = "none") -> prefork.Forked:
    """Start a child."""
    arguments = ["-m", "tests.engine.lock_child", str(folder), session_id, point]
    return prefork.start(
        arguments, cwd=ROOT, env=os.environ, stdout=1, stderr=2, read=("tests.support.engine",)
    )


def turns(log: Path) -> list[str]:
    """Which sessions worked, one after the other: a name stands twice when another one worked between."""
    return [who for who, _ in groupby(counted(log))]


def queue(folder: Path) -> list[str]:
    """Who is in the queue."""
    store = open_sqlite(folder / "sayso.db")
    try:
        return [row.session_id for row in store.locks.rows("one")]
    finally:
        store.close()


def test_sessions_of_several_processes_work_one_after_the_other(tmp_path: Path) -> None:
    """Four processes start at once; no session does anything between two nodes of another one."""
    log = prepare(tmp_path)
    ids = [f"session-{name}" for name in "abcd"]
    children = [child(tmp_path, session_id) for session_id in ids]
    assert [process.wait(30) for process in children] == [0] * 4
    assert sorted(turns(log)) == ids
    assert queue(tmp_path) == []


@pytest.mark.parametrize(
    "point",
    sampled(
        [f"{when}:{number}" for number in (1, 2, 3) for when in ("before", "after")],
        ["before:1", "after:1", "after:3"],
    ),
)
async def test_a_killed_holder_keeps_its_lock(tmp_path: Path, point: str) -> None:
    """Whoever is killed at any of its commits continues under its lock; what waits meanwhile comes after, or before."""
    log = prepare(tmp_path)
    killed = child(tmp_path, "session-a", point)
    assert killed.wait(30) == -signal.SIGKILL
    held = queue(tmp_path)
    other = child(tmp_path, "session-b")
    if held:
        await until(lambda: queue(tmp_path) == ["session-a", "session-b"])
        assert "session-b" not in turns(log)
    again = child(tmp_path, "session-a")
    assert (again.wait(30), other.wait(30)) == (0, 0)
    assert sorted(turns(log)) == ["session-a", "session-b"]
    assert queue(tmp_path) == []
    assert held == ([] if point in ("before:1", "after:3") else ["session-a"])


FORKS = """
import os, sys
from engine.run.executor import random_text
random_text()
reads, writes = os.pipe()
if os.fork():
    os.wait()
    sys.exit(os.read(reads, 100).decode() == random_text())
os.write(writes, random_text().encode())
os._exit(0)
"""


def test_a_forked_process_draws_ids_of_its_own() -> None:
    """Ids are drawn many at once; what a process drew before it forked is used by one of the two only."""
    assert subprocess.run([sys.executable, "-c", FORKS], check=False, timeout=60).returncode == 0
