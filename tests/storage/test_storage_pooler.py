"""A pooler between a store and its server: what it has to be, what is said where it is not, and what is left in its sessions. The
contracts of the store and of lanes run behind one too."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from bot.doctor.fleet import check_listening
from engine.journal.records import InboxItem
from engine.language.errors import KeyMissing, StorageError, StorageFull
from engine.storage.open import open_store
from engine.storage.postgres import open_postgres
from tests.storage.storagekit import KEY, NOW, reaped, rich_session
from tests.support import postgres
from tests.support.pgbouncer import pooled

pytestmark = pytest.mark.process
ITEM = InboxItem("key", "message", b"{}")


@pytest.fixture
def behind(url: str) -> Iterator[str]:
    """The same behind a pooler."""
    with pooled(url, "poor") as pooler:
        yield pooler.url


@pytest.fixture
def narrow(url: str) -> Iterator[str]:
    """The same behind a pooler that has one connection for all of its clients."""
    with pooled(url, more="max_db_connections = 1") as pooler:
        yield pooler.url


def test_nothing_lasts_in_a_session(narrow: str) -> None:
    """All clients have the same session in turn, and find it as the server made it: no setting, no lock, no statement."""
    settings = (
        "SELECT name FROM pg_settings WHERE source = 'session' AND name != 'application_name' ORDER BY 1"
    )
    with psycopg.connect(narrow, autocommit=True) as raw:
        before = raw.execute(settings).fetchall()
    store = open_postgres(narrow, KEY)
    store.register("bot")
    store.serve_beside("all")
    store.listen(lambda: None)
    rich_session(store)
    reaped(store, NOW, NOW)
    # The pooler has one session; it is asked for through the store's client, since PgBouncer 1.18 at times counts a client that
    # sent statements in a pipeline as busy until its next one, and lets no other client in.
    raw = store._db.raw
    assert raw.execute(settings).fetchall() == before
    for what in (
        "pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        "pg_prepared_statements",
        "pg_listening_channels()",
    ):
        assert raw.execute(f"SELECT count(*) FROM {what}").fetchone() == (0,)  # type: ignore[arg-type]  # noqa: S608
    store.close()


def test_a_pooler_that_parts_transactions_is_refused(url: str) -> None:
    """One sentence says which mode it has to have."""
    with (
        pooled(url, mode="statement") as pooler,
        pytest.raises(StorageError, match="set its pool mode to `transaction`"),
    ):
        open_postgres(pooler.url, KEY)


def test_a_pooler_that_keeps_sessions_carries_a_store(url: str) -> None:
    """It is good for more than what is needed."""
    with pooled(url, mode="session") as pooler, closing(open_postgres(pooler.url, KEY)) as store:
        assert store.inbox.ingest([ITEM], NOW) == [1]


def test_a_schema_that_a_pooler_leaves_out_is_noticed(url: str) -> None:
    """Two bots would be in one schema."""
    named = "&options=-csearch_path%3Dteam_b"
    silent = pooled(url, more="ignore_startup_parameters = options")
    left_out = pytest.raises(StorageError, match="the schema team_b, and a pooler in between left that out")
    with silent as pooler, left_out:
        open_postgres(pooler.url + named, KEY)
    with pooled(url) as pooler, pytest.raises(StorageError, match="unsupported startup parameter: options"):
        open_postgres(pooler.url + named, KEY)


def test_each_role_has_its_schema_behind_a_pooler(url: str) -> None:
    """What one bot stores the other does not see."""
    teams = [f"team_{os.urandom(4).hex()}" for _ in "ab"]
    with psycopg.connect(url, autocommit=True) as raw:
        for team in teams:
            raw.execute(f"CREATE ROLE {team} LOGIN")  # type: ignore[arg-type]
            raw.execute(f"CREATE SCHEMA AUTHORIZATION {team}")  # type: ignore[arg-type]
    with pooled(url, *teams) as pooler:
        urls = [pooler.url.replace("postgres@", f"{team}@") for team in teams]
        with closing(open_postgres(urls[0], KEY)) as one, closing(open_postgres(urls[1], KEY)) as other:
            assert one.inbox.ingest([ITEM], NOW) == [1]
            assert other.inbox.rows() == []


def test_what_is_committed_is_heard_at_a_direct_address(url: str, behind: str) -> None:
    """Through the pooler nothing comes, and nobody listens there; doctor says which is the case."""
    with closing(open_postgres(behind, KEY)) as store, closing(open_postgres(behind, KEY)) as other:
        store.register("bot")
        heard = threading.Event()
        store.listen(heard.set, url)
        while not heard.wait(0.1):
            other.consume([], NOW)
            other.inbox.ingest([InboxItem(os.urandom(4).hex(), "message", b"{}")], NOW)
        told = {
            address: [check.text for check in check_listening(store, address)]
            for address in (None, url, postgres.new_database(), f"{url}&user=nobody")
        }
    pooling, direct, elsewhere, refused = told.values()
    assert "each process polls for work twice a second" in pooling[0]
    assert direct == ["notifications arrive at SAYSO_DATABASE_LISTEN_URL"]
    assert elsewhere == ["no notifications arrive at SAYSO_DATABASE_LISTEN_URL"]
    assert "cannot be opened" in refused[0]


def test_a_pooler_as_the_address_to_listen_at_is_told(
    url: str, behind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once; the process looks twice a second."""
    with closing(open_postgres(behind, KEY)) as store:
        store.register("bot")
        store.listen(lambda: None, behind)
        store._owners._threads[-1].join(10)
    assert [record.message for record in caplog.records] == [
        "SAYSO_DATABASE_LISTEN_URL names a pooler, which passes nothing on"
    ]


# --- bad input is one sentence, at the server's own address and through a pooler ----------------------------------


@pytest.fixture(params=["direct", "behind"])
def address(request: pytest.FixtureRequest, url: str) -> str:
    """Each way to the database."""
    return url if request.param == "direct" else str(request.getfixturevalue("behind"))


def test_a_role_without_rights_is_told_what_it_lacks(url: str, address: str) -> None:
    """It says which right is missing."""
    open_postgres(url, KEY).close()
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("DROP ROLE IF EXISTS poor")
        raw.execute("CREATE ROLE poor LOGIN")
    with pytest.raises(StorageError, match=r"may not do this .*permission denied"):
        open_postgres(re.sub("postgres:?@", "poor@", address), KEY)


def test_a_database_needs_its_key(address: str) -> None:
    """No file lies beside a server, and another key is noticed before each row is taken for damaged."""
    with closing(open_postgres(address, KEY)) as store:
        store.bind("T1", "A1")
    with pytest.raises(KeyMissing, match="not the one"):
        open_postgres(address, b"f" * 32)
    with pytest.raises(KeyMissing, match="SAYSO_SECRET_KEY"):
        open_store(address)


def test_a_full_disk_of_the_server_is_one_sentence(url: str, address: str) -> None:
    """Nothing of it is stored, and once there is space work continues."""
    with closing(open_postgres(address, KEY)) as store, psycopg.connect(url, autocommit=True) as raw:
        raw.execute(
            "CREATE FUNCTION pg_temp.no_space() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN RAISE EXCEPTION USING ERRCODE = ''disk_full'', MESSAGE = ''could not extend file''; END'"
        )
        raw.execute("CREATE TRIGGER no_space BEFORE INSERT ON inbox EXECUTE FUNCTION pg_temp.no_space()")
        try:
            with pytest.raises(StorageFull, match="No space is left for Postgres database"):
                store.inbox.ingest([ITEM], NOW)
        finally:
            raw.execute("DROP TRIGGER no_space ON inbox")
        assert store.inbox.rows() == []
        assert store.inbox.ingest([ITEM], NOW)
