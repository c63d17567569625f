"""What a Postgres server costs: steps, what one process tells another, who takes over, and lists.

The server is one of its own on this machine, with its usual settings, and so with fsync; its floor is the same with SQLite in a
file. Over a network each wait for the server costs a round trip more: two a step, one a list of 250.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from bench.floor import MILLISECONDS
from bench.processes import environment
from bench.report import Row, median, quantile
from engine.journal.records import InboxItem
from engine.storage.open import open_store
from engine.storage.store import Store
from tests.storage.storagekit import NOW, done, event, new_session, step
from tests.support import postgres

T = TypeVar("T")
LISTED = 10_000
REPLIES = 300
TAKEOVERS = 20
SECONDS = 3.0
SESSIONS = 64
STEP_BYTES = 400
OTHER = """
import sys, time
from engine.storage.open import open_store
store = open_store(sys.argv[1], bytes.fromhex(sys.argv[2]))
print(store.register("bot"), flush=True)
seen = 0
def wake():
    global seen
    for row in store.inbox.rows(after=seen):
        seen = row.id
        print(row.key, time.monotonic(), flush=True)
store.listen(wake)
sys.stdin.read()
"""

WORKER = """
import sys, time
from engine.storage.open import open_store
from tests.storage.storagekit import done, event, new_session, step
store = open_store(sys.argv[1], bytes.fromhex(sys.argv[2]))
owner, me, seconds = store.register("bench"), sys.argv[3], float(sys.argv[4])
names = [f"beside-{me}-{number}" for number in range(16)]
done(store, *[new_session(name, owner, event("a")) for name in names])
print("ready", flush=True)
sys.stdin.readline()
begin, used, seq, body = time.perf_counter(), time.process_time(), 1, event("b" * 400)
while time.perf_counter() - begin < seconds:
    done(store, *[step(name, 1, seq, body) for name in names])
    seq += 1
print((seq - 1) * len(names), time.process_time() - used, flush=True)
sys.stdin.read()
"""
_BACKENDS = """SELECT pid, wait_event_type IN ('Lock', 'LWLock'), state = 'active' FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND pid != pg_backend_pid()"""


def measure(base: Path, *, quick: bool) -> list[Row]:
    """The rows about Postgres."""
    part = 10 if quick else 1
    server = postgres.server(postgres.folder("bench"))
    try:
        url = server.get_uri()
        with closing(open_store(url, postgres.KEY)) as store, closing(_file(base)) as file:
            return [
                *_steps(store, file, SECONDS / part),
                *_replies(store, url, max(REPLIES // part, 50)),
                *_takeovers(store, url, max(TAKEOVERS // part, 5)),
                *_lists(store, file, LISTED // part),
                *_beside(url, SECONDS / part),
            ]
    finally:
        server.cleanup()


def _batched(values: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(values)
    while some := list(islice(left, size)):
        yield some


def _file(base: Path) -> Store:
    return open_store(f"sqlite:///{base / 'postgres.db'}", postgres.KEY)


def _steps(store: Store, file: Store, seconds: float) -> list[Row]:
    names = [f"stepping-{number}" for number in range(SESSIONS)]
    for one in (store, file):
        owner = one.register("bench")
        done(one, *[new_session(name, owner, event("a")) for name in names])
    seqs = {one: dict.fromkeys(names, 1) for one in (store, file)}

    def rate(one: Store, size: int) -> float:
        begin, count = time.perf_counter(), 0
        while (taken := time.perf_counter() - begin) < seconds:
            for some in _batched(names, size):
                body = event("b" * STEP_BYTES)
                done(one, *[step(name, 1, seqs[one][name], body) for name in some])
                seqs[one].update({name: seqs[one][name] + 1 for name in some})
                count += size
        return count / taken

    note = f"durable, {STEP_BYTES} bytes; the floor is SQLite in a file"
    return [
        Row(
            f"Postgres: steps, {size} at a time",
            rate(store, size),
            "steps/s",
            rate(file, size),
            least=least,
            note=note,
        )
        for size, least in ((1, 1300), (16, 3600))
    ]


def _other(url: str) -> Any:
    command = [sys.executable, "-c", OTHER, url, postgres.KEY.hex()]
    return subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _replies(store: Store, url: str, count: int) -> list[Row]:
    with _other(url) as other:
        other.stdout.readline()
        time.sleep(1)  # it listens by then
        taken = []
        for number in range(count):
            begin = time.monotonic()
            store.inbox.ingest(
                [InboxItem(f"reply-{number}", "message", b"{}", thread_key=f"T:C:{number}")], NOW
            )
            _, at = other.stdout.readline().split()
            taken.append((float(at) - begin) * MILLISECONDS)
        other.kill()
    name = "Postgres: a reply, until another process has read it"
    return [
        Row(f"{name}, p50", median(taken), "ms", limit=15),
        Row(f"{name}, p99", quantile(taken, 0.99), "ms", limit=50),
    ]


def _takeovers(store: Store, url: str, count: int) -> list[Row]:
    taken = []
    for _ in range(count):
        with _other(url) as other:
            owner = other.stdout.readline().strip()
            while not store.alive(owner):
                time.sleep(0.01)
            begin = time.monotonic()
            other.kill()
            while store.alive(owner):
                time.sleep(0.0005)
            taken.append((time.monotonic() - begin) * MILLISECONDS)
    return [Row("Postgres: `kill -9` is noticed, p99", quantile(taken, 0.99), "ms", limit=6000)]


def _lists(store: Store, file: Store, count: int) -> list[Row]:
    taken = []
    for one in (store, file):
        owner = one.register("bench")
        for some in _batched(range(count), 250):
            done(
                one,
                *[new_session(f"listed-{n}", owner, event("a"), status="paused", release=True) for n in some],
            )
        begin = time.perf_counter()
        if len(one.sessions.heads(statuses=["paused"], limit=None)) != count:
            raise RuntimeError("the list is not what was stored")
        taken.append((time.perf_counter() - begin) * MILLISECONDS)
    return [
        Row(
            f"Postgres: {count:,} sessions listed",
            taken[0],
            "ms",
            taken[1],
            note="the floor is SQLite in a file",
        )
    ]


def _beside(url: str, seconds: float) -> list[Row]:
    """Workers of one database: what a step costs them and the server, and how often one waits for another. Where cores are
    scarce the rate of four says little: what it costs, and what waits, says how it grows where they are not."""
    (one, alone, _), (four, each, waits) = (_workers(url, count, seconds) for count in (1, 4))
    note = "16 at a time; processor of the worker and of its connection to the server"
    return [
        Row("Postgres: four workers, steps", four, "steps/s", one, note="the floor is one worker"),
        Row("Postgres: processor a step of four workers", each, "ms", alone, note=note),
        Row("Postgres: of four workers at work, waiting for another", waits, "%", note="sampled"),
    ]


def _workers(url: str, count: int, seconds: float) -> tuple[float, float, float]:
    """Steps a second of so many workers, milliseconds of processor a step, and the share of looks that found one waiting."""
    arguments = (sys.executable, "-c", WORKER, url, postgres.KEY.hex())
    with ExitStack() as stack, psycopg.connect(url, autocommit=True) as raw:
        workers = [
            stack.enter_context(
                subprocess.Popen(
                    [*arguments, f"{count}-{number}", str(seconds)],
                    env=environment(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for number in range(count)
        ]
        for worker in workers:
            _line(worker)
        before, looks, waiting = _used(raw), 0, 0
        for worker in workers:
            _tell(worker)
        until = time.perf_counter() + seconds * 0.9
        while time.perf_counter() < until:
            for _, waits, active in raw.execute(_BACKENDS):
                looks, waiting = looks + bool(active), waiting + bool(active and waits)
            time.sleep(0.005)
        told = [_line(worker).split() for worker in workers]
        server = _used(raw) - before
        for worker in workers:
            worker.kill()
    steps = sum(int(done) for done, _ in told)
    used = sum(float(seconds) for _, seconds in told) + server
    return steps / seconds, used / steps * MILLISECONDS, 100 * waiting / max(looks, 1)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None, "it is a pipe"
    return process.stdout.readline()


def _tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None, "it is a pipe"
    process.stdin.write("go\n")
    process.stdin.flush()


def _used(raw: psycopg.Connection[Any]) -> float:
    """Seconds of processor that the connections of a server have used."""
    ticks = 0
    for pid, *_ in raw.execute(_BACKENDS):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
