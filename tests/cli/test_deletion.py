"""Retention, `sessions delete` and `store compact` delete completely and leave the rest untouched."""

from __future__ import annotations

import asyncio
import io
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bot.cli.app import run
from bot.compose import retention
from bot.config.session_files import blobs_of
from bot.config.settings import Settings, load_settings
from bot.serve import chores
from engine.journal.records import Consumed, InboxItem, KeptRow
from engine.language.errors import SessionError, StorageError
from engine.run.stored import utc_now
from engine.storage import connection, sessions
from engine.storage.group_commit import Writer
from engine.storage.open import open_store
from engine.storage.store import Store
from tests.storage.storagekit import at, done, event, new_session, step

NOW = "2027-06-01T00:00:00.000Z"
MANY = 1_200
"""Events of a journal that is deleted in pieces."""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """An installation in a folder of its own."""
    tmp_path.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    return load_settings({}, cwd=tmp_path, home="home")


def ended(store: Store, session_id: str, *, commits: int = 3) -> None:
    """A session that has ended, with files."""
    text = os.urandom(300).hex()
    begun = [new_session(session_id, None, event(text))]
    begun += [step(session_id, 1, seq, event(text)) for seq in range(1, commits)]
    done(store, *begun[:-1], begun[-1].but(status="complete", phase="ended"))


def filled(settings: Settings) -> Store:
    """Two sessions that ended and one that waits, each with a file."""
    store = open_store(settings.database_url, None)
    ended(store, "session-one")
    ended(store, "session-two", commits=MANY)
    done(store, new_session("session-open", None, event("x"), status="paused", phase="waiting"))
    for head in store.sessions.heads():
        folder = settings.home / "sessions" / head.session_id
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    return store


def left(settings: Settings) -> tuple[list[str], list[str]]:
    """The sessions in the database, and those with a folder."""
    store = open_store(settings.database_url, None)
    try:
        heads = sorted(head.session_id for head in store.sessions.heads())
    finally:
        store.close()
    return heads, sorted(path.name for path in (settings.home / "sessions").iterdir())


def test_delete_takes_a_session_with_its_files(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows, folder and journal are gone; other sessions are as they were."""
    filled(settings).close()
    assert run(["--home", "home", "sessions", "delete", "one"]) == 0
    assert "1 session deleted" in capsys.readouterr().out
    rest = ["session-open", "session-two"]
    assert left(settings) == (rest, rest)


def test_a_dry_run_deletes_nothing(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """It names what would go; without it all that ended before goes, and nothing that is open."""
    filled(settings).close()
    old = ["--home", "home", "sessions", "delete", "--older-than", "1s"]
    assert run([*old, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "session-one" in out
    assert "2 sessions would be deleted; nothing was." in out
    assert len(left(settings)[0]) == 3
    assert run(old) == 0
    assert left(settings) == (["session-open"], ["session-open"])


def test_what_is_open_is_not_deleted(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """One that waits refuses the whole command, with what to do first."""
    filled(settings).close()
    assert run(["--home", "home", "sessions", "delete", "one", "open"]) == 5
    assert "sessions abort session-open" in capsys.readouterr().err
    assert len(left(settings)[0]) == 3


def pieces(settings: Settings) -> int:
    """The transactions in which a long journal goes; in between its session is set aside, so that nobody takes it up."""
    store = filled(settings)
    steps, gone = 0, False
    while not gone:
        with store._db.write():  # type: ignore[attr-defined]
            gone = store.sessions._delete("session-two")  # type: ignore[attr-defined]
        steps += 1
        head = store.sessions.head("session-two")
        assert (head is None) == gone
        assert head is None or head.quarantined == "it is being deleted"
    store.close()
    return steps


def test_a_long_journal_goes_in_pieces(settings: Settings) -> None:
    """No transaction deletes more than a part of it."""
    assert pieces(settings) == 3


def test_a_journal_that_goes_at_once_is_noticed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeded fault: were all of it deleted in one transaction, whoever else writes would wait for that."""
    monkeypatch.setattr(sessions, "_EVENTS_AT_ONCE", MANY + 1)
    assert pieces(settings) == 1


def kept(settings: Settings) -> list[str]:
    """What a round leaves of three sessions: one that ended long ago, one that ended just now, one that waits."""
    store = open_store(settings.database_url, None)
    ended(store, "session-old")
    done(store, new_session("session-open", None, event("x"), status="paused", phase="waiting"))
    done(store, new_session("session-young", None, event("x"), status="complete", phase="ended", now=NOW))
    try:
        retention.at_once(retention.full_round(retention.Retention.of(settings, store), NOW))
        return sorted(head.session_id for head in store.sessions.heads())
    finally:
        store.close()


def test_a_round_takes_only_what_is_old_and_over(settings: Settings) -> None:
    """Neither what waits, however long, nor what ended within the time that it is kept."""
    assert kept(settings) == ["session-open", "session-young"]


def test_a_round_that_looks_at_no_dates_is_noticed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seeded fault: were everything taken for old that has ended, what ended just now would go too."""
    dateless = sessions._ENDED.replace("ended_at < ?", "ended_at <= max(?, ended_at)")
    monkeypatch.setattr(sessions, "_ENDED", dateless)
    assert "session-young" not in kept(settings)


def test_a_round_that_takes_what_waits_is_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seeded fault: were the last change looked at instead of the end, the store would refuse to delete what waits."""
    monkeypatch.setattr(sessions, "_ENDED", sessions._ENDED.replace("ended_at <", "updated_at <"))
    with pytest.raises(SessionError, match="session-open is waiting"):
        kept(settings)


def test_a_round_goes_on_where_it_was_cut(settings: Settings) -> None:
    """A command that had no time for all leaves the rest to the next one, and says that a round is done only then."""
    store = filled(settings)
    kept = retention.Retention.of(settings, store)
    assert retention.is_due(store, NOW)
    assert retention.at_once(retention.full_round(kept, NOW), 0.0) is None
    assert retention.is_due(store, NOW)
    assert retention.at_once(retention.full_round(kept, NOW)) is not None
    assert not retention.is_due(store, NOW)
    store.close()
    assert left(settings) == (["session-open"], ["session-open"])


def test_inbox_keys_stay_a_week_longer(settings: Settings) -> None:
    """What Slack delivers again after its session was deleted is still known."""
    store = filled(settings)
    (row,) = store.inbox.ingest([InboxItem("key", "x", b"{}", "session-one")], at(0))
    assert row is not None
    store.consume([Consumed(row, "applied")], at(0))
    kept = retention.Retention.of(settings, store)
    retention.at_once(retention.full_round(kept, "2027-02-21T12:00:00.000Z"))
    assert store.sessions.head("session-one") is None
    assert store.inbox.row("key") is not None
    retention.at_once(retention.full_round(kept, "2027-03-01T12:00:00.000Z"))
    assert store.inbox.row("key") is None
    store.close()


def test_a_command_that_runs_a_flow_does_its_part(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody needs a bot for the retention: `run` deletes what is old when it is done."""
    filled(settings).close()
    monkeypatch.setenv("SAYSO_RETENTION", "0.01")
    Path("flow.yml").write_text("flow: f\nnodes: [{id: a, type: set, with: {x: 1}}]\n")
    assert run(["--home", "home", "run", "flow.yml", "--no-input"]) == 0
    assert "session-one" not in left(settings)[0]
    assert "session-open" in left(settings)[0]


def test_a_command_that_only_changes_rows_does_its_part(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only what runs a flow: an inbox row that is dropped, a lock or a session that is released."""
    monkeypatch.setenv("SAYSO_RETENTION", "0.01")
    store = open_store(settings.database_url, None)
    ended(store, "session-one")
    store.close()
    folder = settings.home / "sessions" / "session-one"
    folder.mkdir(parents=True)
    assert run(["--home", "home", "inbox", "drop", "--all"]) == 0
    assert left(settings) == ([], [])


def test_a_command_is_done_whatever_becomes_of_old_sessions(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was called for is stored and said; a retention that fails then is not a failure of the command."""
    filled(settings).close()

    def fails(*args: object) -> retention.Steps:
        raise StorageError("database is locked")
        yield

    monkeypatch.setattr(retention, "full_round", fails)
    assert run(["--home", "home", "inbox", "drop", "--all"]) == 0


async def test_by_a_clock_that_jumped_nothing_is_old(settings: Settings) -> None:
    """A machine that wakes up years ahead deletes nothing until its clock was looked at again."""
    store = filled(settings)
    engine: Any = SimpleNamespace(store=store, writer=Writer(store), clock_jumped=lambda: True)
    engine.writer.start()
    assert await chores._retained(settings, engine, NOW) == 0
    assert len(store.sessions.heads()) == 3
    engine.clock_jumped = lambda: False
    assert await chores._retained(settings, engine, NOW) == 2
    engine.writer.close()
    store.close()


def test_the_file_shrinks(settings: Settings) -> None:
    """Free pages are given back with the round; an older file does so once it was compacted."""
    store = open_store(settings.database_url, None)
    for number in range(30):
        ended(store, f"session-{number}", commits=300)
    store._db.checkpoint()  # type: ignore[attr-defined]
    file = settings.home / "sayso.db"
    before = file.stat().st_size
    retention.at_once(retention.full_round(retention.Retention.of(settings, store), NOW))
    store.close()
    assert file.stat().st_size < before / 2


def test_compact_makes_an_old_file_shrinkable(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """It is written again, and keeps what it had."""
    store = filled(settings)
    store._db.raw.pragma("auto_vacuum", "NONE")  # type: ignore[attr-defined]
    store._db.raw.execute("VACUUM")  # type: ignore[attr-defined]
    store.close()
    assert run(["--home", "home", "store", "compact"]) == 0
    assert "MiB now" in capsys.readouterr().out
    store = open_store(settings.database_url, None)
    assert store._db.raw.pragma("auto_vacuum") == 2  # type: ignore[attr-defined]
    assert len(store.sessions.heads()) == 3
    store.close()


def test_compact_waits_for_nobody(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """While another process uses the database it refuses, and names it."""
    store = filled(settings)
    store.register("bot")
    assert run(["--home", "home", "store", "compact"]) == 6
    assert "in use by bot" in capsys.readouterr().err
    store.close()


def test_the_workspace_has_a_database_of_its_own(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not in this home is looked for there, also where SAYSO_DATABASE_URL names the real one."""
    monkeypatch.setenv("SAYSO_DATABASE_URL", "sqlite:///real.db")
    open_store("sqlite:///real.db", None).close()
    workspace = replace(
        settings, home=settings.home / "dev", database_url=f"sqlite:///{settings.home}/dev/sayso.db"
    )
    filled(workspace).close()
    assert run(["--home", "home", "sessions", "delete", "one"]) == 0
    assert left(workspace) == (["session-open", "session-two"],) * 2


# --- files that machines share ---------------------------------------------------------------------------------


def shared(settings: Settings, **env: str) -> Settings:
    """The installation with a place for files of all machines."""
    return replace(settings, blobs=f"file://{settings.home}/shared", env=env)


def kept_blobs(settings: Settings) -> list[str]:
    """The sessions of which files are left by a round, long after a session that ended, one that waits, and one that never
    came to be had some."""
    settings = shared(settings)
    blobs = blobs_of(settings)
    assert blobs is not None
    store = open_store(settings.database_url, None)
    ended(store, "session-old")
    row = KeptRow("files:session-open", "files", "session-open", 1, "9999-12-31T00:00:00.000Z", b"x")
    begun = new_session("session-open", None, event("x"), status="paused", phase="waiting", rows=(row,))
    done(store, begun)
    for session_id in ("session-old", "session-open", "session-never"):
        asyncio.run(blobs.put(session_id, io.BytesIO(b"x")))
    try:
        retention.at_once(retention.full_round(retention.Retention.of(settings, store), NOW))
        assert store.kept.row("files:session-open") == row
        return sorted(blobs.sessions())
    finally:
        store.close()


def test_blobs_go_with_their_session(settings: Settings) -> None:
    """So do those that a crash left of a session that never came to be; none of one that waits, however long."""
    assert kept_blobs(settings) == ["session-open"]


def test_a_round_that_goes_by_age_alone_is_noticed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seeded fault: were what is old taken for nobody's, a session that waits would lose its files."""
    real = retention.orphans_round

    def by_age(kept: retention.Retention, *rest: Any) -> retention.Steps:
        blind = SimpleNamespace(sessions=SimpleNamespace(head=lambda session_id: None))
        return real(replace(kept, store=blind), *rest)

    monkeypatch.setattr(retention, "orphans_round", by_age)
    assert kept_blobs(settings) == []


def test_young_blobs_of_nobody_stay(settings: Settings) -> None:
    """Their session may be about to be stored."""
    settings = shared(settings)
    blobs = blobs_of(settings)
    assert blobs is not None
    asyncio.run(blobs.put("session-new", io.BytesIO(b"x")))
    store = open_store(settings.database_url, None)
    retention.at_once(retention.full_round(retention.Retention.of(settings, store), utc_now()))
    store.close()
    assert blobs.sessions() == ["session-new"]


def test_a_deleted_session_leaves_no_row_of_its_files(settings: Settings) -> None:
    """The row that names them goes with the session."""
    store = open_store(settings.database_url, None)
    row = KeptRow("files:session-a", "files", "session-a", 1, "9999-12-31T00:00:00.000Z", b"x")
    over = {"status": "complete", "phase": "ended", "rows": (row,)}
    done(store, new_session("session-a", None, event("x"), **over))
    assert store.sessions.delete(["session-a"]) == []
    assert store.kept.rows("files") == []
    store.close()


GATE = """flow: gate
inputs: {note: {}}
nodes:
  - {id: why, type: ask, with: {message: "Why {{ inputs.note }}?"}}
  - {id: told, type: message, with: {text: "{{ nodes.why.text }}"}}
"""


def left_of(home: Path, *words: bytes) -> list[str]:
    """Which of these words are in the database or its log."""
    found = b"".join(file.read_bytes() for file in home.glob("sayso.db*"))
    return [word.decode() for word in words if word in found]


@pytest.mark.parametrize("how", ["by id", "by age"])
def test_what_was_deleted_stands_nowhere_in_the_file(
    how: str, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither inputs nor answers are left in pages, free pages or the log, also while another process has the file open."""
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "gate.yml").write_text(GATE)
    assert run(["--home", "home", "run", "gate", "-i", "note=open sesame", "--no-input"]) == 3
    with closing(open_store(settings.database_url, None)) as other:
        [head] = other.sessions.heads()
        assert run(["--home", "home", "sessions", "resume", head.session_id, "swordfish", "--no-wait"]) == 0
        assert left_of(settings.home, b"open sesame", b"swordfish")
        what = [head.session_id] if how == "by id" else ["--older-than", "0s"]
        assert run(["--home", "home", "sessions", "delete", *what]) == 0
        assert left_of(settings.home, b"open sesame", b"swordfish") == []


@pytest.mark.parametrize("part", ["pages", "inbox"])
def test_a_deletion_that_leaves_text_is_noticed(
    part: str,
    settings: Settings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The seeded faults: were freed parts of pages not overwritten, or what people said left in the inbox, it would be found."""
    configure = connection.SqliteConnection._configure

    def careless(database: connection.SqliteConnection) -> None:
        configure(database)
        database.raw.pragma("secure_delete", 0)

    if part == "pages":
        monkeypatch.setattr(connection.SqliteConnection, "_configure", careless)
    else:
        monkeypatch.setattr(retention, "_emptied", lambda kept: iter(()))
    with pytest.raises(AssertionError, match="swordfish"):
        test_what_was_deleted_stands_nowhere_in_the_file("by id", settings, tmp_path, capsys)


NO_CHOICES: list[list[str]] = [
    [],
    ["session-one", "--older-than", "1d"],
    ["--older-than", "1d", "--person", "U1"],
    ["--older-than", "soon"],
    ["--person", ""],
    ["--person", " . "],
    ["session-one", "--person", ""],
]


def test_which_sessions_go_is_said_in_one_way(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """Ids, an age or a person; anything else is refused, and nothing goes."""
    filled(settings).close()
    before = left(settings)
    for words in NO_CHOICES:
        assert run(["--home", "home", "sessions", "delete", *words]) == 2, words
        assert capsys.readouterr().err.startswith("sayso: "), words
    assert left(settings) == before


def test_an_age_never_reaches_into_the_local_workspace(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where this home has no database yet, nothing goes; a session of the workspace goes only by its id."""
    workspace = replace(
        settings, home=settings.home / "dev", database_url=f"sqlite:///{settings.home / 'dev' / 'sayso.db'}"
    )
    filled(workspace).close()
    assert run(["--home", "home", "sessions", "delete", "--older-than", "0s"]) == 2
    assert "nothing to delete" in capsys.readouterr().err
    assert left(workspace)[0] == ["session-one", "session-open", "session-two"]
