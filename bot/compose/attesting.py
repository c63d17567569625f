"""Checkpoints of the audit log: when they are made, and where they are published."""

from __future__ import annotations

import logging
import subprocess
import urllib.request
from pathlib import Path

from bot.config.settings import Settings
from engine.language import timestamps
from engine.language.errors import SaysoError
from engine.run.evidence import attest, size_of
from engine.storage.store import Store

log = logging.getLogger("sayso")

EVERY_SECONDS = 3600.0
"""Seconds between checkpoints over all sessions that went on; ended ones are attested at once."""
ENDED_SECONDS = 2 * EVERY_SECONDS
"""Seconds since the end of a session for which it is looked for between these."""
_PUBLISH_SECONDS = 30.0
_FILE = "checkpoints"
"""Name of the file in a git repository."""


def attested_now(settings: Settings, store: Store, now: str, *, ended: bool = False) -> str | None:
    """Attest all sessions, or only those that `ended`; the new checkpoint, published. Raises `StorageError`."""
    note = attested(store, now, ended=ended)
    if note is not None:
        publish(settings.checkpoints, note)
    return note


def attested(store: Store, now: str, *, ended: bool) -> str | None:
    """Return the checkpoint alone. Raises `StorageError`."""
    since = timestamps.after(now, -ENDED_SECONDS)
    return attest(store, now, ended_since=since if ended else None)


def attest_ended(settings: Settings, store: Store, now: str) -> None:
    """Attest what ended, at the end of a command that wrote. Failures do not affect the command."""
    try:
        attested_now(settings, store, now, ended=True)
    except SaysoError as error:
        log.warning("what ended is attested later: %s", error)


def publish(target: str | None, note: str) -> bool:
    """Publish a checkpoint at a URL, in a git repository (`git:PATH`) or at the end of a file. False, with a line in the log, if
    that failed: the next one covers all that this one does."""
    if target is None:
        return True
    try:
        if target.startswith(("https://", "http://")):
            request = urllib.request.Request(
                target, note.encode(), {"Content-Type": "text/plain; charset=utf-8"}
            )
            with urllib.request.urlopen(request, timeout=_PUBLISH_SECONDS):
                return True
        folder = target.removeprefix("git:")
        file = Path(folder, _FILE) if target.startswith("git:") else Path(target)
        with file.open("a", encoding="utf-8") as published:
            published.write(note)
        if target.startswith("git:"):
            _git(folder, "add", _FILE)
            _git(folder, "commit", "--quiet", "-m", f"Checkpoint of {size_of(note)} leaves", "--", _FILE)
            if _git(folder, "remote"):
                _git(folder, "push", "--quiet")
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", None) or error
        log.warning("a checkpoint was not published at %s (SAYSO_CHECKPOINTS): %s", target, told)
        return False
    return True


def _git(folder: str, *words: str) -> str:
    command = ["git", "-C", folder, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PUBLISH_SECONDS, check=True)
    return done.stdout
