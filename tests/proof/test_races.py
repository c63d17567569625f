"""Eight processes answer one prompt at the same moment, and processes die right after they acknowledged."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from pathlib import Path

import pytest

from engine.journal.events import decode_event
from engine.journal.fold import derive_state
from engine.storage.sqlite import open_sqlite
from tests.proof import child, syscalls
from tests.support import prefork
from tests.support.engine import ANA, counted, flow_of, served, shell_runners
from tests.support.engine import running as engine_running
from tests.support.proving import PROVE

pytestmark = [pytest.mark.process, pytest.mark.timeout(1800)]
RACERS = 8
ROUNDS = 25 if PROVE else 1
ACKNOWLEDGED = 400 if PROVE else 40
FLOW = """
flow: race
nodes:
  - {id: q, type: ask, with: {message: Who is first?}}
  - {id: a, type: shell, with: {script: 'echo "$SAID" >> "$LOG"', env: {LOG: "%s", SAID: "{{ nodes.q.text }}"}}}
"""


def forked(verb: str, folder: Path, *more: str) -> prefork.Forked:
    """A child that has said that it is ready."""
    child = ["-m", "tests.proof.child", verb, str(folder), *more]
    read = ("tests.support.engine",)
    process = prefork.start(child, cwd=syscalls.ROOT, env=os.environ, stdin=PIPE, stderr=2, read=read)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


async def start(verb: str, folder: Path, *more: str, under: tuple[str, ...] = ()) -> Process:
    """A child that has said that it is ready; `under`: the program that runs it."""
    process = await asyncio.create_subprocess_exec(
        *under,
        *(sys.executable, "-m", "tests.proof.child", verb, str(folder), *more),
        cwd=syscalls.ROOT,
        env={**os.environ, "PYTHONPATH": str(syscalls.ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=PIPE,
        stdout=PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        assert await process.stdout.readline() == b"ready\n"
    return process


async def race(verb: str, folder: Path) -> Counter[str]:
    """Let them all loose at once; what each of them was told, counted, and who was told `applied`."""
    names = [f"P{number}" for number in range(RACERS)]
    racers = [await asyncio.to_thread(forked, verb, folder, name) for name in names]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    outcomes = [await asyncio.to_thread(racer.communicate, 60) for racer in racers]
    told = dict(zip(names, (out.strip() for out, _ in outcomes), strict=True))
    winners = [name for name, said in told.items() if said == "applied"]
    assert len(winners) == 1, told
    (folder / "winner").write_text(winners[0])
    return Counter(told.values())


async def asking(folder: Path) -> None:
    """A session in this folder that waits at its question, and no process that holds it."""
    store = open_sqlite(folder / "sayso.db")
    async with engine_running(store, folder, runners=shell_runners()) as rig:
        flow = flow_of(FLOW % (folder / "log"))
        await rig.engine.start(flow, {}, actor=ANA, session_id=child.SESSION)
        state = await rig.engine.parked(child.SESSION)
        (folder / "prompt").write_text(next(iter(state.open_prompts)))


def one_winner(folder: Path) -> None:
    """One answer, by the winner; its effect once; the session complete."""
    store = open_sqlite(folder / "sayso.db")
    try:
        events = [decode_event(row) for row in store.sessions.journal(child.SESSION)]
    finally:
        store.close()
    winner = (folder / "winner").read_text()
    assert derive_state(events).status == "complete"
    (answered,) = [event for event in events if event.type == "prompt:answered"]
    assert answered.actor["name"] == winner
    assert counted(folder / "log") == [winner]


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_eight_requests_for_one_prompt_have_one_winner(round_: int, tmp_path: Path) -> None:
    """Beside a process that serves: one request is applied, seven are told who answered, the effect is made once."""
    await asking(tmp_path)
    store = open_sqlite(tmp_path / "sayso.db")
    async with (
        engine_running(store, tmp_path, runners=shell_runners()) as rig,
        served(rig.engine),
    ):
        told = await race("answer", tmp_path)
        await rig.engine.parked(child.SESSION)
    assert sum(told.values()) == RACERS
    assert {said for said in told if said != "applied"} <= {
        "refused already_answered",
        "refused session_ended",
    }
    one_winner(tmp_path)


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_eight_engines_that_resume_one_session_have_one_winner(round_: int, tmp_path: Path) -> None:
    """With nobody serving: one claim wins and continues, the others are refused and change nothing."""
    await asking(tmp_path)
    told = await race("resume", tmp_path)
    assert told["applied"] == 1
    assert all(said.startswith("refused ") for said in told if said != "applied")
    one_winner(tmp_path)


def stored(folder: Path, keys: list[str]) -> list[str]:
    """Which of these keys the inbox has."""
    store = open_sqlite(folder / "sayso.db")
    try:
        return [key for key in keys if store.inbox.row(key) is not None]
    finally:
        store.close()


async def acknowledged(process: Process, count: int) -> list[str]:
    """Send rows without waiting, kill the process once so many were acknowledged; all keys that it acknowledged."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"go\n" + b"".join(b"key-%d\n" % number for number in range(3 * count)))
    async with asyncio.timeout(60):
        keys = [(await process.stdout.readline()).decode().strip() for _ in range(count)]
        process.kill()
        rest = await process.stdout.read()
        await process.wait()
    return keys + [line for line in rest.decode().split("\n")[:-1] if line]


@pytest.mark.parametrize("round_", range(10 if PROVE else 1))
async def test_what_was_acknowledged_survives_a_kill(round_: int, tmp_path: Path) -> None:
    """`kill -9` in a stream of deliveries: every row of which the sender heard is there."""
    process = await start("ingest", tmp_path)
    keys = await acknowledged(process, ACKNOWLEDGED)
    assert len(keys) >= ACKNOWLEDGED
    assert stored(tmp_path, keys) == keys


async def test_what_is_acknowledged_was_on_the_disk_before(tmp_path: Path) -> None:
    """Against power loss: between the last write to the log of the database and each acknowledgement lies its sync."""
    missing = await syscalls.strace_missing()
    if missing:
        assert not os.environ.get("CI"), f"CI must prove this: {missing}"
        pytest.skip(f"the order of system calls cannot be seen here: {missing}")
    trace = tmp_path / "trace"
    names = "trace=pwrite64,write,fdatasync,fsync"
    process = await start("ingest", tmp_path, under=("strace", "-f", "-y", "-o", str(trace), "-e", names))
    assert process.stdin is not None
    async with asyncio.timeout(60):
        await process.communicate(b"go\n" + b"".join(b"key-%d\n" % number for number in range(20)))
    dirty, seen, heard = False, 0, 0
    for line in trace.read_text().splitlines():
        if re.search(r"pwrite64\(\d+<[^>]*sayso\.db-wal>", line):
            dirty, seen = True, seen + 1
        elif re.search(r"(fdatasync|fsync)\(\d+<[^>]*sayso\.db-wal>\) += 0", line):
            dirty = False
        elif re.search(r'write\(1<[^>]*>, "key-', line):
            assert not dirty, f"acknowledged before it was durable: {line}"
            heard += 1
    assert heard == 20
    assert seen >= 20
