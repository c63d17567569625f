"""Checkpoints: made at the end of runs and once an hour, and published to a file, a URL or a git repository."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from bot.compose import attesting
from bot.compose.attesting import Publisher
from bot.config.settings import SettingsError, load_settings
from bot.serve import chores
from deploy.verify_audit import check
from engine.language.errors import Corrupt
from engine.run import evidence
from engine.storage.group_commit import Writer
from engine.storage.open import MemoryStore
from engine.storage.tables import session_number
from tests.deploy.test_verify_audit import FIRST, HISTORIES, SECOND, THIRD, added, export, note
from tests.storage.storagekit import NOW, done, new_session

PROGRESS = [(FIRST, HISTORIES[FIRST][:4]), (SECOND, HISTORIES[SECOND]), (FIRST, HISTORIES[FIRST])]


@pytest.fixture(name="store")
def empty_store() -> MemoryStore:
    """A store without sessions."""
    return MemoryStore(b"k" * 32)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said, as people see it."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


class Receiver(HTTPServer):
    """A service to which checkpoints are sent; it answers with `status`."""

    status = 201

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Its address."""
        self.got = Queue[bytes]()
        thread = threading.Thread(target=self.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{self.server_port}/evidence?token=hunter2"
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class Answer(BaseHTTPRequestHandler):
    """Keeps what is posted."""

    def do_POST(self) -> None:
        """Keep the body unless it is refused."""
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if server.status < 300:
            server.got.put(body)
        self.send_response(server.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        """A page, as a redirected POST would find it."""
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def published(store: MemoryStore, publisher: Publisher) -> list[bool]:
    """Whether each checkpoint of a store that grows could be published."""
    told = []
    for name, events in PROGRESS:
        added(store, name, events)
        told.append(publisher.publish(attesting.newest(store)))
    return told


def verified(store: MemoryStore, data: bytes) -> str:
    """What an auditor finds in published checkpoints, beside an export."""
    return check(evidence.keys(store), [("export", export(store)), ("published", data)])


def test_a_file_has_all_checkpoints_and_none_twice(store: MemoryStore, tmp_path: Path) -> None:
    """Also if one is published again, by another process."""
    publisher = Publisher(str(tmp_path / "published"))
    assert published(store, publisher) == [True, True, True]
    assert Publisher(str(tmp_path / "published")).publish(attesting.newest(store))
    assert "3 published checkpoints" in verified(store, (tmp_path / "published").read_bytes())


def test_a_url_gets_each_checkpoint_and_a_redirect_is_no_success(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """An outage, a refusal and a redirect are said once; the next checkpoint covers what is missing; no secret is said."""
    receiver = Receiver(("127.0.0.1", 0), Answer)
    with receiver.serving() as url:
        publisher = Publisher(url)
        for status in (201, 500, 302, 204):
            receiver.status = status
            added(store, f"at-{status}", HISTORIES[FIRST])
            assert publisher.publish(attesting.newest(store)) == (status < 300)
        assert "2 published checkpoints" in verified(store, b"".join(receiver.got.queue))
    assert not publisher.publish(attesting.newest(store))
    told = warnings(caplog)
    assert len(told) == 3
    assert "HTTP Error 500" in told[0]
    assert "published at http://127.0.0.1 again" in told[1]
    assert "refused" in told[2]
    assert "hunter2" not in "".join(told)


def test_a_repository_has_a_commit_for_each_checkpoint_and_is_pushed(
    store: MemoryStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A remote that is away is said once, with git's words, and has everything once it is there again."""
    bare, clone, away = tmp_path / "bare.git", tmp_path / "clone", tmp_path / "away.git"
    git(tmp_path, "init", "--quiet", "--bare", str(bare))
    git(tmp_path, "clone", "--quiet", str(bare), str(clone))
    (clone / "other").write_text("what somebody else is about to commit")
    git(clone, "add", "other")
    publisher = Publisher(f"git:{clone}")
    added(store, *PROGRESS[0])
    assert publisher.publish(attesting.newest(store))
    assert warnings(caplog) == []
    bare.rename(away)
    for step in PROGRESS[1:]:
        added(store, *step)
        assert not publisher.publish(attesting.newest(store))
    away.rename(bare)
    assert publisher.publish(attesting.newest(store))
    lost, back = warnings(caplog)
    assert "does not appear to be a git repository fatal: Could not read" in lost
    assert "are published at" in back
    branch = git(clone, "branch", "--show-current").strip()
    assert "3 published checkpoints" in verified(store, git(bare, "show", f"{branch}:checkpoints").encode())
    assert git(bare, "log", "--format=%s by %an", branch).splitlines() == [
        f"Checkpoint of {size} leaves by sayso" for size in (4, 3, 2)
    ]
    assert git(clone, "status", "--porcelain") == "A  other\n"


def test_a_clone_without_a_remote_is_only_committed_to(store: MemoryStore, tmp_path: Path) -> None:
    """And a folder that is not a clone is refused by the settings."""
    git(tmp_path, "init", "--quiet", "clone")
    target = load_settings({"SAYSO_CHECKPOINTS": "git:clone"}, cwd=tmp_path).checkpoints
    assert published(store, Publisher(target)) == [True, True, True]
    assert len(git(tmp_path / "clone", "log", "--format=%h").splitlines()) == 3
    with pytest.raises(SettingsError, match="git:PATH of an existing clone"):
        load_settings({"SAYSO_CHECKPOINTS": "git:nowhere"}, cwd=tmp_path)


def test_a_file_that_cannot_be_written_is_said_once_and_loses_nothing(
    store: MemoryStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its folder is missing at first; the checkpoint that is written then covers those before it."""
    publisher = Publisher(str(tmp_path / "folder/published"))
    assert published(store, publisher) == [False, False, False]
    (tmp_path / "folder").mkdir()
    assert publisher.publish(attesting.newest(store))
    assert ["No such file" in told for told in warnings(caplog)] == [True, False]
    assert "1 published checkpoints" in verified(store, (tmp_path / "folder/published").read_bytes())


def test_half_a_checkpoint_is_taken_back(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full in the middle of one leaves the file as it was before."""
    file = tmp_path / "published"
    publisher = Publisher(str(file))
    added(store, *PROGRESS[0])
    assert publisher.publish(attesting.newest(store))
    before = file.read_bytes()
    added(store, *PROGRESS[1])

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert not publisher.publish(attesting.newest(store))
    monkeypatch.undo()
    assert file.read_bytes() == before
    assert publisher.publish(attesting.newest(store))
    assert "2 published checkpoints" in verified(store, file.read_bytes())


async def test_the_bot_attests_what_ended_at_once_and_the_rest_each_hour(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its start all of it, one session a transaction; a checkpoint that was not published is tried again, also one from before."""
    file = tmp_path / "folder/published"
    settings: Any = SimpleNamespace(checkpoints=str(file))
    engine: Any = SimpleNamespace(store=store, writer=Writer(store))
    engine.writer.start()
    clock, turns = [0.0], asyncio.Queue[asyncio.Future[None]]()

    async def sleep(seconds: float) -> None:
        assert seconds == chores.ATTEST_SECONDS
        clock[0] += seconds
        turn = asyncio.get_running_loop().create_future()
        await turns.put(turn)
        await turn

    monkeypatch.setattr(chores.asyncio, "sleep", sleep)
    for number in range(5):
        added(store, f"before-{number}", HISTORIES[FIRST][:4], attested=False)
    work = asyncio.create_task(chores.attest(settings, engine, lambda: NOW, lambda: clock[0]))

    async def round_over(turn: asyncio.Future[None] | None = None) -> asyncio.Future[None]:
        if turn is not None:
            turn.set_result(None)
        return await asyncio.wait_for(turns.get(), 20)

    try:
        turn = await round_over()
        assert [row.note is not None for row in store.evidence.after(0)] == [False, *[True] * 5]
        assert not file.exists()
        file.parent.mkdir()
        clock[0] += chores.AGAIN_SECONDS
        turn = await round_over(turn)
        assert file.read_bytes() == note(store, 6)
        added(store, "runs", HISTORIES[FIRST][:4], attested=False)
        turn = await round_over(turn)
        assert store.evidence.size() == 6
        rows = [event.to_bytes() for event in HISTORIES[FIRST]]
        done(store, new_session("session-ended", None, *rows, status="complete", phase="ended"))
        turn = await round_over(turn)
        assert store.evidence.size() == 7
        assert store.evidence.ahead() == ["session-runs"]
        clock[0] += attesting.EVERY_SECONDS
        await round_over(turn)
        assert store.evidence.ahead() == []
        assert file.read_bytes() == b"".join(note(store, size) for size in (6, 7, 8))
    finally:
        work.cancel()
        engine.writer.close()


def test_what_is_damaged_holds_up_no_other_session(store: MemoryStore) -> None:
    """It stays to be attested; those around it are."""
    for name, events in PROGRESS[:2]:
        added(store, name, events, attested=False)
    added(store, THIRD, HISTORIES[THIRD], attested=False)
    number = session_number(f"session-{SECOND}")
    store._db.run("UPDATE journal SET body = x'00' WHERE session = ?", (number,))
    assert evidence.attest(store, NOW)
    assert store.evidence.ahead() == [f"session-{SECOND}"]
    found = evidence.Export(store, 0, content=False)
    assert check(evidence.keys(store), [("export", b"".join(line + b"\n" for line in found.lines()))])
    assert [told.split()[0] for told in found.damaged] == [f"session-{SECOND}"]


def test_a_damaged_log_is_said_and_ends_no_command(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Its last leaf was changed outside: nothing is signed on top of it, and the command that ended a run succeeds."""
    settings: Any = SimpleNamespace(checkpoints=None)
    rows = [event.to_bytes() for event in HISTORIES[FIRST]]
    for name in ("one", "two"):
        done(store, new_session(f"session-{name}", None, *rows, status="complete", phase="ended"))
        attesting.attest_ended(settings, store, NOW)
        store._db.run("UPDATE leaves SET line = replace(line, 'head', 'tail') WHERE n = 2")
    assert ["not attested yet" in told for told in warnings(caplog)] == [True]
    assert store.evidence.size() == 2
    with pytest.raises(Corrupt):
        evidence.attest(store, NOW)
