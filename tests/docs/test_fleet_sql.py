"""The SQL that the page about Postgres tells operators to run, on a server."""

from __future__ import annotations

import re
from contextlib import closing

import psycopg
import pytest

from engine.journal.records import InboxItem
from engine.storage.lanes import CHORES, SEND
from engine.storage.postgres import open_postgres
from tests.docs.test_docs import ROOT, blocks
from tests.storage.storagekit import KEY, NOW
from tests.support import postgres

pytestmark = pytest.mark.process
STATEMENTS = [
    statement.strip()
    for block in blocks(ROOT / "docs" / "fleet.md", "sql")
    for statement in re.sub(r"(?m)^--.*\n", "", block).split(";")
    if statement.strip()
]
LANE = re.findall(r"WHERE key = '([^']+)'", "\n".join(STATEMENTS))[0]


def test_each_statement_runs_and_finds_what_it_is_there_to_find() -> None:
    """With a process that has two lanes, and a message that waits in a third one."""
    url = postgres.empty_database()
    with closing(open_postgres(url, KEY)) as store, closing(psycopg.connect(url)) as operator:
        store.register("bot")
        assert store.lanes.claim(SEND)
        assert store.lanes.claim(CHORES)
        store.inbox.ingest([InboxItem("key", "message", b"{}", thread_key=LANE)], NOW)
        for statement in STATEMENTS:
            done = operator.execute(statement)  # type: ignore[call-overload]
            if "outbox" not in statement and "CREATE" not in statement:
                assert done.rowcount > 0, statement
        operator.rollback()  # roles would be there for all tests of this server
