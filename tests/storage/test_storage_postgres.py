"""What only a server has: refusals of servers that cannot carry a store, answers that are lost, leases. Refusals that are the same
behind a pooler: `test_storage_pooler`."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from engine.journal.records import InboxItem, PromptRow, PutLock, PutOutbox, Row
from engine.language.errors import SchemaTooNew, StorageBroken, StorageError, StoreTooOld
from engine.storage import lanes, postgres_connection, postgres_workers
from engine.storage.leases import holder_of
from engine.storage.postgres import _OWN_TABLES, PostgresStore, _version, open_postgres
from engine.storage.postgres_connection import PostgresConnection
from tests.storage.storagekit import KEY, NOW, at, claim, done, event, new_session, python, reaped, step, tell
from tests.support import postgres
from tests.support.between import Relay

pytestmark = pytest.mark.process
ITEM = InboxItem("key", "message", b"{}")

WORKER = """
import sys
from engine.storage import lanes, postgres_workers
lanes.LIMIT_SECONDS, postgres_workers.BEAT_SECONDS = 0.5, 0.05
from engine.storage.postgres import open_postgres
from tests.storage.storagekit import KEY, NOW, at, claim, done, event, new_session, outcome, step
store = open_postgres(sys.argv[1], KEY)
owner = store.register("bot")
done(store, new_session("session-1", owner, event("a")))
print(owner, flush=True)
for line in sys.stdin:
    found = outcome(lambda: done(store, step("session-1", 1, 1, event("late"))))
    print(found.__name__ if isinstance(found, type) else found, flush=True)
"""


def test_whoever_waited_while_another_one_made_the_tables_finds_them() -> None:
    """A fleet's first start: it had looked before, and the server answers some questions of a transaction from a cache."""
    url = postgres.new_database("template0")
    with closing(PostgresConnection(url)) as first, closing(PostgresConnection(url)) as second:
        assert _version(second) == 0
        with second.write():
            with first.write():
                first.raw.execute(_OWN_TABLES)
                first.run("UPDATE format SET version = 7")
            assert _version(second) == 7


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    """This process's connection to it."""
    store = open_postgres(url, KEY)
    yield store
    store.close()


@pytest.fixture
def relay(url: str) -> Iterator[Relay]:
    """Something in between."""
    with tempfile.TemporaryDirectory(prefix="relay") as folder:
        relay = Relay(Path(folder), url.partition("host=")[2])
        yield relay
        relay.close()


def through(relay: Relay, url: str) -> str:
    """The URL of the database behind the relay."""
    return url.partition("host=")[0] + f"host={relay.folder}"


def soon(holds: object, seconds: float = 10.0) -> float:
    """Wait until something is so; after how many seconds it was."""
    began = time.monotonic()
    while not holds():  # type: ignore[operator]
        assert time.monotonic() - began < seconds, "it never was so"
        time.sleep(0.005)
    return time.monotonic() - began


# --- servers that cannot carry a store ---------------------------------------------------------------------------


def test_an_older_server_is_refused(relay: Relay, url: str) -> None:
    """Before 14 a server ends no silent connection."""

    def older(data: bytes) -> bytes:
        name = b"server_version\0"
        at = data.find(name)
        if at < 0:
            return data
        end = data.index(b"\0", at + len(name))
        return data[: at + len(name)] + b"13.9"[: end - at - len(name)] + data[end:]

    relay.to_client = older
    with pytest.raises(StorageError, match=r"is Postgres 13.9; sayso needs Postgres 14"):
        open_postgres(through(relay, url), KEY)


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    """What people see holds no secret."""
    with pytest.raises(StorageError, match="Postgres database flows at /nowhere cannot be opened") as caught:
        open_postgres("postgresql://bot:hunter2@/flows?host=/nowhere", KEY)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "login", ["bot:hunter%2@db", "bot:hunter/2@db", "bot:x@hunter2.invalid@db", "bot@db/x?password=hunter%"]
)
def test_a_password_that_was_not_escaped_is_not_shown(login: str) -> None:
    """The driver quotes what it could not read, or takes it for a host."""
    with pytest.raises(StorageError, match="percent-encoded") as caught:
        open_postgres(f"postgresql://{login}/flows", KEY)
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is None or "hunter" not in str(caught.value.__cause__)


def test_a_database_of_a_newer_release_is_left_alone(store: PostgresStore, url: str) -> None:
    """It says which schema it has."""
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("UPDATE format SET version = version + 1")
        try:
            with pytest.raises(SchemaTooNew, match="newer release"):
                open_postgres(url, KEY)
        finally:
            raw.execute("UPDATE format SET version = version - 1")


def test_a_database_of_a_build_before_1_0_is_refused() -> None:
    """Its tables are left as they are, and one sentence says what to do."""
    url = postgres.new_database("template0")
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("CREATE TABLE schema_version AS SELECT 8 AS version")
        raw.execute("CREATE SEQUENCE changes")
        with pytest.raises(StoreTooOld, match="build of sayso before"):
            open_postgres(url, KEY)
        assert raw.execute("SELECT to_regclass('sessions')").fetchone() == (None,)


def test_a_database_of_another_program_is_refused() -> None:
    """A table with a name of ours says nothing of ours."""
    url = postgres.new_database("template0")
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("CREATE TABLE format AS SELECT '1.2.0' AS version")
    with pytest.raises(StorageError, match="tables of another program"):
        open_postgres(url, KEY)


# --- answers that are lost ---------------------------------------------------------------------------------------


def lost_at_commit(relay: Relay, *, stored: bool) -> list[bytes]:
    """Cut the connection at the first COMMIT, behind it or before it; the list has it then."""
    seen: list[bytes] = []

    def to_server(data: bytes) -> bytes | None:
        if b"COMMIT" not in data or seen:
            return data
        seen.append(data)
        return data if stored else None

    relay.to_server = to_server

    def to_client(data: bytes) -> bytes | None:
        if not (seen and b"COMMIT" in data and stored):
            return data
        relay.to_client = lambda data: data
        return None

    relay.to_client = to_client
    return seen


def test_a_commit_whose_answer_is_lost_is_not_said_to_have_failed(relay: Relay, url: str) -> None:
    """After a lost answer, the server is asked for the outcome of the commit."""
    store = open_postgres(through(relay, url), KEY)
    seen = lost_at_commit(relay, stored=True)
    [row_id] = store.inbox.ingest([ITEM], NOW)
    assert seen
    assert [row.id for row in store.inbox.rows()] == [row_id]
    store.close()


@pytest.mark.parametrize("leaves", [False, True])
def test_whoever_serves_asks_for_as_long_as_it_takes(
    relay: Relay, url: str, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    """The server is away right after a COMMIT: no process ends, and what was stored is not said to have failed. One that is to stop
    does not wait."""
    monkeypatch.setattr(postgres_connection, "UNSURE_SECONDS", 0.0)
    monkeypatch.setattr(postgres_workers, "BEAT_SECONDS", 3600.0)
    store = open_postgres(through(relay, url), KEY)
    store.register("bot")
    store.serve_beside("all")
    lost_at_commit(relay, stored=True)
    cut = relay.to_client

    def away(data: bytes) -> bytes | None:
        passed = cut(data)
        if passed is None:
            relay.to_client = lambda data: None
        return passed

    relay.to_client = away
    with ThreadPoolExecutor() as pool:
        stored = pool.submit(store.inbox.ingest, [ITEM], NOW)
        with pytest.raises(TimeoutError):
            stored.result(2.0)
        if leaves:
            with pytest.raises(StorageError):
                store.leave()
            with pytest.raises(StorageBroken):
                stored.result(20)
        else:
            relay.to_client = lambda data: data
            assert stored.result(20) == [1]
    store.close()


def test_a_commit_whose_number_was_dropped_meanwhile_is_not_guessed_at(relay: Relay, url: str) -> None:
    """The process slept for days, and others have swept: the number that is not there says nothing."""
    store = open_postgres(through(relay, url), KEY)
    store.inbox.ingest([ITEM], NOW)
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("TRUNCATE transactions")
    with pytest.raises(StorageBroken):
        store._db._was_committed()


def test_a_commit_that_did_not_arrive_is_carried_out_again(relay: Relay, url: str) -> None:
    """Nothing was stored, so it can be, on a new connection."""
    store = open_postgres(through(relay, url), KEY)
    seen = lost_at_commit(relay, stored=False)
    assert store.inbox.ingest([ITEM], NOW) != [None]
    assert seen
    assert len(store.inbox.rows()) == 1
    store.close()


def answers_to(relay: Relay) -> bytearray:
    """What the server answers from here on."""
    answers = bytearray()

    def to_client(data: bytes) -> bytes:
        answers.extend(data)
        return data

    relay.to_client = to_client
    return answers


def test_a_batch_waits_for_the_server_as_often_as_a_step(relay: Relay, url: str) -> None:
    """Once for what it stores, and once for its COMMIT, however many sessions and rows are in it."""
    store = open_postgres(through(relay, url), KEY)
    owner = store.register("bot")
    names = [f"session-{number}" for number in range(8)]
    done(store, *[new_session(name, owner, event("a")) for name in names])
    answers = answers_to(relay)
    prompts = [PromptRow(f"prompt-{name}", name, "T1:C1:1", "open", None, b"{}") for name in names]
    done(store, *[step(row.session_id, 1, 1, event("b"), rows=(row,)) for row in prompts])
    assert answers.count(b"Z\0\0\0\5T") == 1, "it was ready inside of a transaction"
    store.close()


def test_what_a_killed_process_left_of_its_transactions_is_swept(store: PostgresStore, url: str) -> None:
    """Its number is asked for within a minute; after a day nobody does."""
    store.inbox.ingest([ITEM], NOW)
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("INSERT INTO transactions VALUES ('killed', 7, now() - interval '2 days')")
        reaped(store, NOW, NOW)
        assert raw.execute("SELECT writer FROM transactions").fetchall() == [(store._db._writer,)]


def test_a_list_waits_for_the_server_once_for_many_rows(relay: Relay, url: str) -> None:
    """A list of ten thousand sessions would ask twenty thousand times."""
    store = open_postgres(through(relay, url), KEY)
    owner = store.register("bot")
    names = [f"session-{number}" for number in range(300)]
    done(store, *[new_session(name, owner, event("a")) for name in names])
    answers = answers_to(relay)
    assert [head.session_id for head in store.sessions.heads(limit=None)] == names[::-1]
    assert answers.count(b"Z\0\0\0\5T") < 10
    store.close()


def test_a_store_that_does_not_ask_is_noticed(
    relay: Relay, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the question, what was stored is carried out again: what is ingested counts as known."""
    monkeypatch.setattr(postgres_connection.PostgresConnection, "_was_committed", lambda self: False)
    with pytest.raises(AssertionError, match="None"):
        test_a_commit_whose_answer_is_lost_is_not_said_to_have_failed(relay, url)


def test_what_is_refused_behind_a_commit_does_not_undo_it(store: PostgresStore, url: str) -> None:
    """A server that becomes read-only just then refuses to count the transaction, which is stored."""
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("ALTER SEQUENCE changes RENAME TO away")
        try:
            assert store.inbox.ingest([ITEM], NOW) == [1]
        finally:
            raw.execute("ALTER SEQUENCE away RENAME TO changes")
    assert [row.key for row in store.inbox.rows()] == ["key"]


def test_a_step_that_lost_against_others_is_not_taken_for_one_of_another_owner(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was remembered of the first attempt was never stored."""
    done(store, new_session("session-1", store.register("bot"), event("a")))
    lost: list[object] = []
    put_all = store._put_all

    def loses(rows: Iterable[Row], now: str) -> None:
        put_all(rows, now)
        if not lost:
            lost.append(rows)
            raise psycopg.errors.DeadlockDetected("deadlock detected")

    monkeypatch.setattr(store, "_put_all", loses)
    done(store, step("session-1", 1, 1, now=at(5)))
    assert lost


def test_the_outcome_of_a_post_is_stored_although_it_lost_against_others(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was posted: whoever sends may not take the error for one of the row."""
    store.consume([], NOW, [PutOutbox("card", "T1:C1", "post", b"{}")])
    [row] = store.outbox.due(now=NOW)
    lost: list[object] = []
    receive = store.inbox.receive

    def loses(item: InboxItem, now: str) -> int | None:
        if not lost:
            lost.append(item)
            raise psycopg.errors.DeadlockDetected("deadlock detected")
        return receive(item, now)

    monkeypatch.setattr(store.inbox, "receive", loses)
    assert store.outbox.finish(row.id, row.rev, now=NOW, state="sent", items=[ITEM])
    assert lost
    assert store.outbox.due(now=NOW) == []


def test_a_connection_that_was_lost_while_nothing_was_done_is_made_anew(
    store: PostgresStore, url: str
) -> None:
    """Nobody hears of it."""
    for work in (lambda: store.inbox.ingest([ITEM], NOW), store.inbox.rows):
        with psycopg.connect(url, autocommit=True) as raw:
            raw.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'sayso'"
                " AND datname = current_database()"
            )
        assert work()


# --- leases ------------------------------------------------------------------------------------------------------


def test_death_is_noticed(store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `kill -9` no sign of life comes any more: another one may continue."""
    monkeypatch.setattr(lanes, "LIMIT_SECONDS", 0.5)
    other = python(WORKER, url)
    assert other.stdout is not None
    owner = other.stdout.readline().strip()
    assert store.alive(owner)
    assert "bot" in store.serving()
    other.kill()
    assert soon(lambda: not store.alive(owner)) < 2
    assert store.sessions.orphans() == ["session-1"]
    other.wait()


def test_a_frozen_process_is_taken_for_dead_and_stores_nothing_that_others_took(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others take over from a process without a heartbeat, and nothing it does after waking is stored."""
    monkeypatch.setattr(lanes, "LIMIT_SECONDS", 0.5)
    other = python(WORKER, url)
    assert other.stdout is not None
    owner = other.stdout.readline().strip()
    os.kill(other.pid, signal.SIGSTOP)
    soon(lambda: not store.alive(owner))
    assert store.sessions.orphans() == ["session-1"]
    mine = store.register("bot")
    store._owners.signs._since -= 60
    claim(store, "session-1", mine, NOW)
    os.kill(other.pid, signal.SIGCONT)
    assert tell(other, "step") == "Fenced"
    soon(lambda: store.alive(owner))
    other.kill()
    other.wait()


def test_bots_of_one_database_are_apart_in_schemas_of_their_own(url: str) -> None:
    """What one stores, holds and tells, the other neither sees nor waits for; its role cannot even read it."""
    teams = [f"team_{os.urandom(4).hex()}" for _ in "ab"]
    with psycopg.connect(url, autocommit=True) as raw:
        for team in teams:
            raw.execute(f"CREATE ROLE {team} LOGIN")  # type: ignore[arg-type]
            raw.execute(f"CREATE SCHEMA AUTHORIZATION {team}")  # type: ignore[arg-type]
    urls = [url.replace("postgres:@", f"{team}@") for team in teams]
    with closing(open_postgres(urls[0], KEY)) as one, closing(open_postgres(urls[1], b"f" * 32)) as other:
        one.bind("T1", "A1")
        other.bind("T2", "A2")
        owner = one.register("bot")
        done(one, new_session("session-1", owner, event("a"), rows=(PutLock("prod", "session-1"),)))
        heard: list[str] = []
        other.listen(lambda: heard.append("look"))
        time.sleep(0.2)
        assert one.inbox.ingest([ITEM], NOW) == other.inbox.ingest([ITEM], NOW) == [1]
        assert (other.sessions.heads(), other.locks.rows(), other.serving(), other.alive(owner)) == (
            [],
            [],
            [],
            False,
        )
        other.register("bot")
        for store in (one, other):
            assert store.try_serving(holder_of("sayso start", NOW)) is not None
        with one._db.write():
            one._db.hold("lock prod")
            with other._db.write():
                other._db.hold("lock prod")
        assert heard == ["look"], "of its own row"
        with psycopg.connect(urls[1]) as raw, pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw.execute(f"SELECT * FROM {teams[0]}.sessions")  # type: ignore[arg-type]  # noqa: S608
        with pytest.raises(StorageError, match=r"permission denied.*AUTHORIZATION role"):
            open_postgres(f"{urls[1]}&options=-csearch_path%3D{teams[0]}", KEY)


def test_a_schema_that_the_url_names_is_made(store: PostgresStore, url: str) -> None:
    """And nothing is ever found in the one behind it."""
    done(store, new_session("session-1", store.register("bot"), event("a")))
    name = f"s{os.urandom(4).hex()}"
    other = open_postgres(f"{url}&options=-csearch_path%3D{name}", KEY)
    assert (other._db.schema, other.sessions.heads(), other.serving()) == (name, [], [])
    other.close()
