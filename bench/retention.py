"""How long an acknowledgement waits while twenty thousand old sessions are deleted: the store and its writer alone."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path

from bench.report import Row, quantile
from bot.compose.retention import Retention, full_round, in_turn
from bot.config.session_files import SessionFiles
from engine.journal.records import Commit, InboxItem, NewSession, PromptRow, PutOutbox, Stored
from engine.storage.group_commit import Writer
from engine.storage.sqlite import SqliteStore, open_sqlite

SESSIONS = 20_000
EVENTS = 12
THEN, NOW = "2026-01-01T00:00:00.000Z", "2026-11-22T00:00:00.000Z"
MOST_MILLISECONDS = 20.0
_FLOW = b'{"flow":"old"}'


def measure(folder: Path, *, quick: bool = False) -> list[Row]:
    """The longest wait of an inbox row while the sessions go, and how large the file is then."""
    path = folder / "retention.db"
    store = open_sqlite(path)
    fill(store, SESSIONS // 10 if quick else SESSIONS)
    size = path.stat().st_size
    waits, seconds = asyncio.run(_deleted(store, folder))
    store.close()
    after = path.stat().st_size
    count = SESSIONS // 10 if quick else SESSIONS
    return [
        Row(
            f"longest wait of an event while {count:,} old sessions go",
            max(waits) * 1000,
            "ms",
            limit=MOST_MILLISECONDS,
        ),
        Row("p99 of these waits", quantile(waits, 0.99) * 1000, "ms"),
        Row("until all of them are gone", seconds, "s"),
        Row("the file after it, of before", 100 * after / size, "%"),
    ]


def fill(store: SqliteStore, sessions: int) -> None:
    """Sessions that ended long ago, each with events, a prompt and an intent."""
    digest = hashlib.sha256(_FLOW).hexdigest()
    event = b'{"type":"session:message","text":"%b"}' % (b"x" * 300)
    for first in range(0, sessions, 500):
        commits = []
        for number in range(first, min(first + 500, sessions)):
            name = f"session-{number:06}"
            rows = (
                PromptRow(f"prompt-{number}", name, None, "answered", None, b"{}"),
                PutOutbox(key=f"card:{number}", lane=name, kind="show", payload=b"{}", session_id=name),
            )
            new = NewSession("old", digest, _FLOW)
            commits.append(
                Commit(name, 1, 0, THEN, "complete", "ended", events=(event,) * EVENTS, rows=rows, new=new)
            )
        assert store.commit(commits) == [Stored()] * len(commits)


async def _deleted(store: SqliteStore, folder: Path) -> tuple[list[float], float]:
    writer = Writer(store)
    writer.start()
    kept = Retention(store, SessionFiles(folder), None, 90)
    begin = time.perf_counter()
    work = asyncio.create_task(in_turn(full_round(kept, NOW), writer))
    waits: list[float] = []
    while not work.done():
        asked = time.perf_counter()
        await writer.ingest([InboxItem(key=f"k{len(waits)}", kind="x", payload=b"{}")], NOW)
        waits.append(time.perf_counter() - asked)
        await asyncio.sleep(0.005)
    await work
    seconds = time.perf_counter() - begin
    writer.close()
    return waits, seconds
