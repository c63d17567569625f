"""A Postgres database of a landed version opens and goes on: see README.md."""

from __future__ import annotations

from pathlib import Path

import psycopg

from engine import Actor, Runtime
from engine.storage.postgres import open_postgres
from tests.homes.corpus import FOLDER
from tests.support.postgres import KEY, new_database

MADE = "2026-11-24T01:00:00.000Z"
"""Just after it was made: its deadline has not passed."""


async def test_a_session_of_an_earlier_schema_goes_on(tmp_path: Path) -> None:
    """Nothing that had run runs again, and whoever opens the database next finds its tables as they are now."""
    url = new_database("template0")
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute((FOLDER / "eed7836.postgres.sql").read_bytes())
    async with Runtime(open_postgres(url, KEY), home=tmp_path, now=lambda: MADE) as runtime:
        session = await runtime.session("session-eed7836000")
        assert [question.message for question in session.questions] == ["Went yes\n?"]
        await session.answer("it did", actor=Actor.local("ana"))
        result = await session.rest()
        assert result.outputs["ship"]["stdout"] == "yes\n"
        assert session.status == "complete"
    open_postgres(url, KEY).close()
