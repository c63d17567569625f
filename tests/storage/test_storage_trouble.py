"""A store that refuses for a while is retried with one backoff, and the log says since when."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import pytest

from bot.config.settings import load_settings
from bot.doctor.agents import check_freshness
from engine.language.errors import Corrupt, StorageBusy, StorageError
from engine.nodes.runtime.folder import private_folder
from engine.storage import backoff, connection, group_commit
from engine.storage.backoff import waited_out
from engine.storage.group_commit import Writer
from engine.storage.open import open_store
from engine.storage.sqlite import open_sqlite
from tests.storage.storagekit import KEY, NOW, ROOT, sample_item


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock is waited for, and a trouble has ended, within milliseconds."""
    monkeypatch.setattr(connection, "BUSY_MILLISECONDS", 5)
    monkeypatch.setattr(group_commit, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(backoff, "FIRST_SECONDS", 0.001)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Another program holds the write lock, as soon as a transaction that is in progress has ended."""
    other = apsw.Connection(str(path))
    other.set_busy_timeout(20_000)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


def test_a_command_waits_for_another_program_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is opened with patience writes once the other one lets go, at its opening and later."""
    path = tmp_path / "sayso.db"
    open_sqlite(path, key=KEY).close()
    monkeypatch.setattr(backoff, "TOLD_SECONDS", -1.0)
    other = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(backoff.time, "sleep", lambda _: other.execute("ROLLBACK"))
    store = open_sqlite(path, key=KEY, patience=60)
    store.marks.move("a", "1")
    assert store.marks.ts("a") == "1"
    assert "is held by another program; waiting 60 s for it at most" in caplog.text
    store.close()
    other.close()


def test_the_patience_of_a_command_ends(tmp_path: Path) -> None:
    """Then it says for how long the database was held."""
    path = tmp_path / "sayso.db"
    open_sqlite(path, key=KEY).close()
    store = open_sqlite(path, key=KEY, patience=0.01)
    with held(path), pytest.raises(StorageBusy, match=r"was held by another process for 0\.01 s"):
        store.marks.move("a", "1")
    store.close()


async def test_a_locked_database_is_waited_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log and `doctor`, in another process, say since when; once it is free the work is done, and nothing is said any more."""
    path = tmp_path / "sayso.db"
    store, other = open_sqlite(path, key=KEY), open_sqlite(path, key=KEY)
    store.register("bot")
    told, loop, note = asyncio.Event(), asyncio.get_running_loop(), store.note_trouble

    def noted(text: str | None) -> None:
        note(text)
        loop.call_soon_threadsafe(told.set)

    monkeypatch.setattr(store, "note_trouble", noted)
    queue = Writer(store)
    queue.start()
    with held(path):
        work = asyncio.create_task(waited_out(lambda: queue.ingest([sample_item("s")], NOW), "a message"))
        await told.wait()
        [trouble] = other.troubles()
        assert trouble.startswith("bot: the store refuses since 20")
        assert [check.text for check in check_freshness(other) if check.level == "fail"] == [trouble]
        assert not work.done()
    assert await work == [1]
    await queue.call(queue.store.inbox.rows)
    assert other.troubles() == []
    assert "the store works again" in caplog.text
    queue.close()
    store.close()
    other.close()


async def test_damage_is_not_waited_out() -> None:
    """Trying again does not repair a page."""
    tries = 0

    async def read() -> None:
        nonlocal tries
        tries += 1
        raise Corrupt("malformed")

    with pytest.raises(Corrupt):
        await waited_out(read, "a read")
    assert tries == 1


async def test_nothing_is_waited_for_in_a_shutdown() -> None:
    """What could not be stored by then is raised."""

    async def write() -> None:
        raise StorageError("locked")

    with pytest.raises(StorageError):
        await waited_out(write, "a write", lambda: False)


def test_a_link_as_the_database_is_refused_wherever_it_is_named(tmp_path: Path) -> None:
    """Also in `SAYSO_DATABASE_URL` and `--db`, with a relative path."""
    open_sqlite(tmp_path / "real.db", key=KEY).close()
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    settings = load_settings({"SAYSO_DATABASE_URL": "sqlite:///link.db"}, cwd=tmp_path)
    with pytest.raises(StorageError, match="not a regular file"):
        open_store(settings.database_url, KEY)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_folders_of_sessions_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Each session's, and the one that has them all, also where it was made before with another mode."""
    before = os.umask(umask)
    try:
        folder = private_folder(tmp_path / "home" / "sessions" / "session-1")
    finally:
        os.umask(before)
    folder.parent.chmod(0o755)
    private_folder(folder)
    for made in (folder, folder.parent):
        assert made.stat().st_mode & 0o777 == 0o700
    with suppress(FileNotFoundError):
        assert (tmp_path / "home").stat().st_mode & 0o077 == 0


READ_ONLY = """
import sys
from pathlib import Path
from engine.language.errors import StorageError
from engine.storage.sqlite import open_sqlite
try:
    open_sqlite(Path(sys.argv[1]))
except StorageError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.process
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs a way to give up what root may do")
def test_a_read_only_home_is_refused_in_words(tmp_path: Path) -> None:
    """A database that was made before, in a folder that may only be read now: an error of the store, and no traceback."""
    home = tmp_path / "home"
    open_sqlite(home / "sayso.db").close()
    for path in (*home.rglob("*"), home):
        path.chmod(path.stat().st_mode & 0o555)
    program = [sys.executable, "-c", READ_ONLY, str(home / "sayso.db")]
    rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    done = subprocess.run([*rights, *program], capture_output=True, text=True, cwd=ROOT, check=False)
    home.chmod(0o700)
    assert (done.stdout.split(" ")[0], "cannot be opened" in done.stdout) == ("PathUnusable", True), (
        done.stderr
    )
