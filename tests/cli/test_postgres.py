"""A home that moves to Postgres and back, at the real command line."""

from __future__ import annotations

import pytest

from engine.storage.open import place_of
from engine.storage.postgres_words import statement
from tests.cli.clikit import Cli
from tests.cli.flowtexts import two_questions
from tests.support import postgres

pytestmark = pytest.mark.process


def test_a_paused_session_goes_on_in_postgres(cli: Cli) -> None:
    """It is copied with its key, answered there, and copied back; nothing is copied over what is there."""
    two_questions(cli)
    paused = cli.run("run", "talk", "-i", "who=bob").json
    url, file = postgres.new_database("template0"), ".sayso/sayso.db"
    copied = cli.run("store", "copy", file, url)
    assert (copied.code, "holds 1 session" in copied.out) == (0, True), copied
    key = (cli.cwd / f"{file}.key").read_text().strip()
    cli.env = {"SAYSO_DATABASE_URL": url, "SAYSO_SECRET_KEY": f"hex:{key}"}
    answered = cli.run("prompts", "answer", paused["prompts"][0]["promptId"], "eu")
    assert answered.code in (0, 3), answered
    assert "opens with its key" in cli.run("doctor").out
    assert "not an SQLite file" in cli.run("backup", "copy.db").err
    assert "already has rows" in cli.run("store", "copy", file, url).err
    assert cli.run("store", "copy", url, "back.db").code == 0
    here = cli.run("sessions", "show", paused["sessionId"], "--json").json
    assert cli.run("--db", "back.db", "sessions", "show", paused["sessionId"], "--json").json == here


def test_a_database_without_its_key_is_one_clear_sentence(cli: Cli) -> None:
    """It says which setting is missing, and how to make a key."""
    cli.env = {"SAYSO_DATABASE_URL": "postgresql://bot:hunter2@db.internal/flows"}
    done = cli.run("sessions", "list")
    assert (done.code, "needs SAYSO_SECRET_KEY" in done.err, "hunter2" in done.err) == (6, True, False), done


def test_a_place_shows_no_password() -> None:
    """People see the database and the host."""
    assert place_of("postgresql://bot:hunter2@db.internal/flows") == "Postgres database flows at db.internal"


@pytest.mark.parametrize(
    ("sql", "words", "picked"),
    [
        ("SELECT a FROM t WHERE b = ? AND c = ?", "SELECT a FROM t WHERE b = $1 AND c = $2", (0, 1)),
        (
            "SELECT a FROM t WHERE b = ?2 AND c < ?2 LIMIT ?3",
            "SELECT a FROM t WHERE b = $1 AND c < $1 LIMIT $2",
            (1, 2),
        ),
        ("SELECT a FROM t INDEXED BY i WHERE +status = ?", "SELECT a FROM t WHERE status = $1", (0,)),
    ],
)
def test_a_statement_is_put_into_other_words(sql: str, words: str, picked: tuple[int, ...]) -> None:
    """Places are numbered again, without those that nothing uses, and hints for SQLite are left out."""
    assert statement(sql) == (words, picked)
