"""Checkpoints of the audit log: when they are made, and where they are published."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from urllib.parse import urlsplit

from bot.config.settings import Settings
from engine.language import timestamps
from engine.language.errors import SaysoError
from engine.storage.store import Store

log = logging.getLogger("sayso")

EVERY_SECONDS = 3600.0
"""Seconds between checkpoints over all sessions that continued; ended ones are attested at once."""
ENDED_SECONDS = 2 * EVERY_SECONDS
"""Seconds since the end of a session for which it is looked for between these."""
COMMAND_SECONDS = 5.0
"""Seconds for which a command waits until its checkpoint is published; the bot waits longer."""
_PUBLISH_SECONDS = 30.0
_FILE = "checkpoints"
"""Name of the file in a git repository."""


def since(now: str) -> str:
    """Return the time after which sessions ended that are looked for between full rounds."""
    return timestamps.after(now, -ENDED_SECONDS)


def attest_all(settings: Settings, store: Store, now: str) -> None:
    """Attest all sessions, and publish the newest checkpoint. Makes the first key where there is none. Raises `StorageError`."""
    from engine.run import evidence

    if evidence.attest(store, now) is None and not store.evidence.size():
        evidence.rotate(store, now)
    Publisher(settings.checkpoints, COMMAND_SECONDS).publish(newest(store))


def attest_ended(settings: Settings, store: Store, now: str) -> None:
    """Attest what ended, at the end of a command that wrote. Failures do not affect the command."""
    try:
        if not store.evidence.ahead(since(now)):
            return
        from engine.run import evidence  # with the library that signs; most commands end no run

        note = evidence.attest(store, now, ended_since=since(now))
        Publisher(settings.checkpoints, COMMAND_SECONDS).publish(note)
    except SaysoError as error:
        log.warning("The end of a run is not attested yet: %s", error)


def newest(store: Store) -> str | None:
    """Return the newest checkpoint. Raises `Corrupt`."""
    size = store.evidence.size()
    return store.evidence.leaf(size).note if size else None


class Publisher:
    """Puts checkpoints at a URL, into a git repository (`git:` and a clone) or at the end of a file. It says once that it cannot, and
    once that it can again: each checkpoint covers all that those before it do, so the next one makes up for any that is missing."""

    def __init__(self, target: str | None, seconds: float = _PUBLISH_SECONDS) -> None:
        self._target, self._seconds = target, seconds
        self._failing = False

    def publish(self, note: str | None) -> bool:
        """Publish a checkpoint; False if that failed. Published again, it is not added twice."""
        if self._target is None or note is None:
            return True
        try:
            if self._target.startswith(("https://", "http://")):
                self._post(self._target, note)
            else:
                self._append(self._target, note)
        except Exception as error:  # whatever it is, it is no fault of the runs that are attested
            if not self._failing:
                told = " ".join((getattr(error, "stderr", None) or str(error)).split())
                place = shown(self._target)
                log.warning("Checkpoints cannot be published at %s (SAYSO_CHECKPOINTS): %s", place, told)
            self._failing = True
            return False
        if self._failing:
            log.warning("Checkpoints are published at %s again", shown(self._target))
        self._failing = False
        return True

    def _post(self, url: str, note: str) -> None:
        from urllib.request import Request, urlopen

        request = Request(url, note.encode(), {"Content-Type": "text/plain; charset=utf-8"})
        with urlopen(request, timeout=self._seconds) as answer:
            if answer.url != request.full_url:  # it was asked for by GET there, which publishes nothing
                raise ValueError("it redirects to another address")

    def _append(self, target: str, note: str) -> None:
        folder = target.removeprefix("git:") if target.startswith("git:") else None
        told = note.encode()
        with Path(folder, _FILE).open("ab+") if folder else open(target, "ab+") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - len(told)))
            if file.read() != told:
                try:
                    file.write(told)
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(end)  # half a checkpoint would make the file one that was changed
                    raise
        if folder is None:
            return
        self._git(folder, "add", _FILE)
        if self._git(folder, "status", "--porcelain", "--", _FILE):
            size = note.split("\n")[1]
            who = ("-c", "user.name=sayso", "-c", "user.email=sayso@localhost")
            self._git(folder, *who, "commit", "--quiet", "-m", f"Checkpoint of {size} leaves", "--", _FILE)
        if self._git(folder, "remote"):
            self._git(folder, "push", "--quiet")

    def _git(self, folder: str, *words: str) -> str:
        import subprocess

        command, env = ["git", "-C", folder, *words], {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
        none, pipe = subprocess.DEVNULL, subprocess.PIPE
        return subprocess.check_output(
            command, env=env, stdin=none, stderr=pipe, text=True, timeout=self._seconds
        )


def shown(target: str) -> str:
    """Return where checkpoints are published, without what a URL may keep secret."""
    return (
        target
        if not target.startswith("http")
        else f"{urlsplit(target).scheme}://{urlsplit(target).hostname}"
    )
