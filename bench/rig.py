"""An engine over a real database, with nodes that do nothing and a count of every commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import apsw

from bot.intents.session_rows import slack_intents
from engine.decide.commands import Action
from engine.forms.question import Question
from engine.journal.records import Commit
from engine.journal.state import State
from engine.language.actors import Actor
from engine.nodes.runtime.python import python
from engine.nodes.runtime.runner import Completed, Runner
from engine.run.engine import Engine
from engine.storage.sqlite import open_sqlite
from engine.storage.store import Store
from prompt_state.question_row import projection

ANA = Actor(id="U0LOCALANA", name="ana", facts_known=True)
STEP_TABLES = ("journal", "snapshots", "inbox", "prompts", "timers", "outbox")
"""What the steps of sessions write, beside the sessions' heads."""
NOTHING = Completed({"stdout": "", "stderr": "", "exit_code": 0, "seconds": 0.0})
"""The outcome of a shell node that does nothing."""


class CountingStore:
    """The store, with every commit counted; everything else goes straight through."""

    def __init__(self, store: Store) -> None:
        self.inner = store
        self.commits = 0

    def commit(self, batch: Sequence[Commit]) -> list[Exception | None]:
        """One transaction, however many sessions share it."""
        self.commits += 1
        return self.inner.commit(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class Rig:
    """The engine and what it writes to."""

    engine: Engine
    store: CountingStore
    file: Path
    failures: list[str] = field(default_factory=list)

    def commits(self) -> int:
        """Transactions of sessions so far."""
        return self.store.commits

    async def bytes_per_commit(self) -> int:
        """What a commit stores on average: its share of all rows, and a session's head, which every commit writes."""
        return await self.engine.writer.call(self._bytes_per_commit)

    def _bytes_per_commit(self) -> int:
        rows, head = stored_bytes(self.file)
        return round(rows / max(1, self.commits()) + head)


def stored_bytes(file: Path) -> tuple[int, int]:
    """Bytes in all values of all rows that steps write, and bytes of one session's head on average."""
    db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        heads, count = _bytes_in(db, "sessions")
        return sum(_bytes_in(db, name)[0] for name in STEP_TABLES), heads // max(1, count)
    finally:
        db.close()


def _bytes_in(db: apsw.Connection, name: str) -> tuple[int, int]:
    columns = [str(row[1]) for row in db.execute(f'PRAGMA table_info("{name}")').fetchall()]
    sizes = " + ".join(f'coalesce(length(CAST("{column}" AS BLOB)), 0)' for column in columns)
    row = db.execute(f'SELECT coalesce(sum({sizes}), 0), count(*) FROM "{name}"').fetchone()  # noqa: S608  (our own schema)
    assert row is not None
    return int(row[0]), int(row[1])


def everybody(actor: Actor, action: Action, state: State, prompt: Question | None) -> str | None:
    """A policy that refuses nobody."""
    return None


@asynccontextmanager
async def engine_in(
    folder: Path, runner: Runner, *, vfs: str | None = None, encryption_keys: Sequence[bytes] = ()
) -> AsyncIterator[Rig]:
    """An engine as the bot has it (prompts and intents to show them are committed too), with this runner for `shell`, and the one for `python`."""
    file = folder / "sayso.db"
    store = CountingStore(open_sqlite(file, vfs=vfs, encryption_keys=encryption_keys))
    engine = Engine(
        cast(Store, store),
        policy=everybody,
        runners={"shell": runner, "python": python},
        home=folder,
        extensions=[projection, slack_intents],
        label="bench",
    )
    await engine.open()
    try:
        yield Rig(engine, store, file)
    finally:
        await engine.close()
        store.close()


def thread_of(team: str, channel: str, ts: str) -> dict[str, Any]:
    """A session's place in Slack."""
    return {"team": team, "channel": channel, "threadTs": ts, "key": f"{team}:{channel}:{ts}"}
