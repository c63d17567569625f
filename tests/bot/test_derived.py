"""Rows that follow from the journal: deleted or older ones are found, and written again as the journal has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from bot.compose.projections import differences, heads_of, intents, mend, repairs
from bot.intents.session_rows import slack_intents
from engine.decide.commands import Shown
from engine.journal.records import DropLock, PutLock, TakeLock
from engine.language.errors import StorageError
from engine.run.stored import utc_now
from engine.storage.sqlite import open_sqlite
from engine.storage.store import Store
from prompt_state.question_row import projection
from tests.support.engine import EngineRig, running

ASKS = """flow: asks
lock: api
nodes: [{id: sure, type: ask, with: {message: Sure?, timeout: 1h, remind_every: 10m}}]
"""
THREAD = {"team": "T1", "channel": "C1", "threadTs": "1.0", "key": "T1:C1:1.0"}
TABLES = ("timers", "locks", "prompts", "outbox")


class Home:
    """A database, an engine over it, and a hand that changes rows from outside."""

    def __init__(self, folder: Path) -> None:
        self.path, self.folder = folder / "sayso.db", folder

    @asynccontextmanager
    async def rig(self) -> AsyncIterator[EngineRig]:
        """An engine as the bot has it."""
        extensions = [projection, slack_intents]
        async with running(open_sqlite(self.path), self.folder, extensions=extensions) as rig:
            rig.engine.sessions.repairs, rig.engine.sessions.intents = repairs, intents
            yield rig

    def outside(self, sql: str) -> None:
        """Change rows as another program would."""
        connection = apsw.Connection(str(self.path))
        connection.set_busy_timeout(5000)
        connection.execute(sql)
        connection.close()

    def rows(self) -> dict[str, list[Any]]:
        """What there is of each table that follows from journals, without numbers and times of writing."""
        connection = apsw.Connection(str(self.path))
        sql = {
            "timers": "SELECT timer_id, due_at FROM timers ORDER BY 1",
            "locks": "SELECT name, session_id, taken_at IS NULL FROM locks ORDER BY n",
            "prompts": "SELECT prompt_id, status, deadline FROM prompts ORDER BY 1",
            "outbox": "SELECT key FROM outbox WHERE key LIKE 'prompt:%' ORDER BY 1",
        }
        found = {table: list(connection.execute(sql[table])) for table in TABLES}
        connection.close()
        return found


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home of its own."""
    return Home(tmp_path)


async def asked(rig: EngineRig, *, shown: bool = True) -> str:
    """A session that holds a lock and waits for an answer; its id."""
    session_id = await rig.start(ASKS, thread=THREAD)
    await rig.engine.parked(session_id)
    if shown:
        prompt = await rig.open_prompt(session_id)
        await rig.engine.apply(session_id, Shown(prompt.prompt_id, {"channel": "C1", "ts": "2.0"}))
        await rig.engine.parked(session_id)
    return session_id


def told(store: Store) -> list[str]:
    """The differences, in words."""
    return [str(found) for found in differences(store, heads_of(store))]


async def test_what_was_written_is_what_the_journal_says(home: Home) -> None:
    """Waiting, queued, answered and ended sessions differ in nothing."""
    async with home.rig() as rig:
        first, _second = await asked(rig), await asked(rig, shown=False)
        assert told(rig.store) == []
        await rig.reply(first, "yes")
        assert told(rig.store) == []


@pytest.mark.parametrize("table", TABLES)
async def test_deleted_rows_come_back(home: Home, table: str) -> None:
    """Timers, locks, prompts and questions that are still to be shown."""
    async with home.rig() as rig:
        await asked(rig, shown=table != "outbox")
        before = home.rows()
        assert before[table]
        home.outside(f"DELETE FROM {table}")  # noqa: S608 - our own names
        [what] = told(rig.store)
        assert ("messages" if table == "outbox" else table) in what
        mend(rig.store, utc_now(), heads_of(rig.store))
        assert (home.rows(), told(rig.store)) == (before, [])


async def test_prompts_beyond_a_page_are_compared_too(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session with more prompts than a reader usually asks for lacks none of them."""
    async with home.rig() as rig:
        await asked(rig)
        prompts = rig.store.prompts.rows
        monkeypatch.setattr(
            rig.store.prompts, "rows", lambda *, limit=0, **more: prompts(limit=limit, **more)
        )
        assert told(rig.store) == []


async def test_a_store_that_refuses_is_no_session_that_cannot_be_read(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can say that rows are as they should be: it is asked again."""
    async with home.rig() as rig:
        await asked(rig)

        def refuses(*args: Any, **more: Any) -> Any:
            raise StorageError("database is locked")

        monkeypatch.setattr(rig.store.prompts, "rows", refuses)
        with pytest.raises(StorageError, match="locked"):
            told(rig.store)


async def test_a_question_that_may_have_been_shown_is_looked_for_first(home: Home) -> None:
    """Its record is gone, so nobody knows whether it was sent: it counts as attempted."""
    async with home.rig() as rig:
        await asked(rig, shown=False)
        home.outside("DELETE FROM outbox WHERE key LIKE 'prompt:%'")
        mend(rig.store, utc_now(), heads_of(rig.store))
        [row] = [row for row in rig.store.outbox.due(now="9999") if row.key.startswith("prompt:")]
        assert row.attempts == 1


async def test_older_rows_are_put_right(home: Home) -> None:
    """A prompt that is open again, a timer at another time, a lock of a session that has ended: genuine, and wrong."""
    async with home.rig() as rig:
        session_id = await asked(rig)
        home.outside("CREATE TABLE aside AS SELECT * FROM prompts")
        home.outside("CREATE TABLE times AS SELECT * FROM timers")
        home.outside("CREATE TABLE places AS SELECT * FROM locks")
        await rig.reply(session_id, "yes")
        before = home.rows()
        home.outside("DELETE FROM prompts")
        for table, copy in (("prompts", "aside"), ("timers", "times"), ("locks", "places")):
            home.outside(f"INSERT INTO {table} SELECT * FROM {copy}")  # noqa: S608 - our own names
        [what] = told(rig.store)
        assert "(locks, prompts, timers)" in what
        mend(rig.store, utc_now(), heads_of(rig.store))
        assert home.rows() == before


async def test_a_holder_gets_its_place_back_before_those_who_wait(home: Home) -> None:
    """Its row was deleted: whoever waits does not get the lock meanwhile."""
    async with home.rig() as rig:
        holder, waits = await asked(rig), await asked(rig, shown=False)
        home.outside(f"DELETE FROM locks WHERE session_id = '{holder}'")  # noqa: S608 - our own names
        assert rig.store.locks.grants() == [waits]
        mend(rig.store, utc_now(), heads_of(rig.store))
        assert rig.store.locks.grants() == []
        assert [row.session_id for row in rig.store.locks.rows()] == [holder, waits]


async def test_a_holder_whose_lock_was_taken_is_set_aside(home: Home) -> None:
    """Two sessions would work under one lock: the one that lost its row does not continue."""
    async with home.rig() as rig:
        holder, waits = await asked(rig), await asked(rig, shown=False)
        rig.store.consume(
            (), utc_now(), [DropLock("api", holder), PutLock("api", waits), TakeLock("api", waits)]
        )
        mend(rig.store, utc_now(), heads_of(rig.store))
        head = rig.store.sessions.head(holder)
        assert head is not None
        assert "lock was deleted" in (head.quarantined or "")


@pytest.mark.parametrize(
    "change",
    [
        *(f"DELETE FROM {table}" for table in TABLES),  # noqa: S608 - our own names
        "UPDATE timers SET due_at = '2999-01-01T00:00:00.000Z'",
        "UPDATE prompts SET status = 'answered'",
        "UPDATE prompts SET deadline = '2999-01-01T00:00:00.000Z'",
        "UPDATE prompts SET body = CAST('{}' AS BLOB)",
    ],
)
async def test_a_claim_puts_the_rows_of_its_session_right(home: Home, change: str) -> None:
    """A command that runs without the bot believes no row of its session that somebody deleted or changed."""
    async with home.rig() as rig:
        session_id = await asked(rig, shown="outbox" not in change)
        before = home.rows()
    home.outside(change)
    async with home.rig() as rig:
        await rig.engine.apply(session_id, None)
        assert (home.rows(), told(rig.store)) == (before, [])


@pytest.mark.parametrize("table", ["timers", "prompts"])
async def test_a_claim_that_believes_its_rows_is_noticed(
    home: Home, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seeded fault: were rows of a session not compared when it is claimed, what somebody deleted would stay away."""
    monkeypatch.setitem(globals(), "repairs", lambda state, stored: [])
    with pytest.raises(AssertionError):
        await test_a_claim_puts_the_rows_of_its_session_right(home, f"DELETE FROM {table}")  # noqa: S608 - our own


async def test_a_claim_drops_what_was_added(home: Home) -> None:
    """Genuine rows of an earlier time, written back: no command believes them."""
    async with home.rig() as rig:
        session_id = await asked(rig)
        home.outside("CREATE TABLE times AS SELECT * FROM timers")
        home.outside("CREATE TABLE aside AS SELECT * FROM prompts")
        await rig.reply(session_id, "yes")
    home.outside("INSERT INTO timers SELECT * FROM times")
    home.outside("DELETE FROM prompts")
    home.outside("INSERT INTO prompts SELECT * FROM aside")
    async with home.rig() as rig:
        await rig.engine.apply(session_id, None)
        assert told(rig.store) == []


@pytest.mark.parametrize(
    "change",
    ["DELETE FROM locks", "UPDATE locks SET name = 'other'", "UPDATE locks SET session_id = 'session-x'"],
)
async def test_a_deleted_lock_is_not_taken_by_another_session(home: Home, change: str) -> None:
    """The holder, which nobody claims meanwhile, gets its place back before another session takes the lock."""
    async with home.rig() as rig:
        await asked(rig)
    home.outside(change)
    async with home.rig() as rig:
        waits = await asked(rig, shown=False)
        assert rig.store.locks.rows("api")[-1].session_id == waits
        assert not (await rig.engine.state(waits)).open_prompts
        assert told(rig.store) == [] or "session-x" in change


async def test_a_lock_of_a_session_that_is_over_holds_up_nobody(home: Home) -> None:
    """Its row was written back: it is taken out of the queue."""
    async with home.rig() as rig:
        over = await asked(rig)
        home.outside("CREATE TABLE places AS SELECT * FROM locks")
        await rig.reply(over, "yes")
    home.outside("INSERT INTO locks SELECT * FROM places")
    async with home.rig() as rig:
        assert (await rig.engine.state(await asked(rig))).open_prompts
