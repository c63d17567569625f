"""Deletion of old data: ended sessions after their time, with their files; and sessions that people name.

All of it in steps of a few milliseconds, each a transaction of its own, so that other writers wait no longer than that.
The bot does it once an hour; every other process that wrote does some of it at its end, if an hour has passed. Files go
first: a crash in between leaves an ended session without files, which the next round deletes.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bot.config.session_files import SessionFiles, blobs_of
from bot.config.settings import Settings
from engine.journal.records import Sweep
from engine.language import timestamps
from engine.language.errors import SaysoError, StoreSuspended
from engine.nodes.runtime.kept_files import kept_folder
from engine.run.snapshot_files import SnapshotFiles
from engine.storage.group_commit import Writer
from engine.storage.store import Store

if TYPE_CHECKING:
    from engine.storage.blobs import Blobs

log = logging.getLogger("sayso")

DONE = "retention"
"""The mark that says when a round was completed, in seconds since 1970."""
EVERY_SECONDS = 3600.0
KEYS_LONGER_DAYS = 7
"""Days for which keys of inbox rows outlive sessions, so that late redeliveries start nothing."""
COMMAND_SECONDS = 0.25
"""Seconds that a command spends on a part of a round."""
PAUSE_SECONDS = 0.005
_AT_ONCE = 50


class Step(NamedTuple):
    """One action and its place: the thread that writes, or one on which waiting for the disk blocks nobody."""

    where: Literal["store", "disk"]
    work: Callable[[], Any]


Steps = Generator[Step, Any, int]
"""Steps one after the other, each sent its outcome; how many sessions were deleted."""


@dataclass(frozen=True)
class Retention:
    """Storage and rules of the retention."""

    store: Store
    files: SessionFiles
    snapshots: SnapshotFiles | None
    days: float
    blobs: Blobs | None = None

    @classmethod
    def of(cls, settings: Settings, store: Store) -> Retention:
        """That of an installation."""
        snapshots = SnapshotFiles(settings.snapshot_dir) if settings.snapshot_dir else None
        return cls(store, SessionFiles(settings.home), snapshots, settings.retention_days, blobs_of(settings))

    def remove_files(self, session_id: str) -> None:
        """Remove the files of a session on the disk, and in blobs."""
        folder = self.files.folder(session_id)
        for each in (folder, kept_folder(folder), *folder.parent.glob(f"{session_id}.*")):
            shutil.rmtree(each, ignore_errors=True)
        if self.blobs is not None:
            self.blobs.remove(session_id)
        if self.snapshots is not None:
            self.snapshots.remove(session_id)


def deletion(kept: Retention, session_ids: Sequence[str]) -> Steps:
    """Delete these sessions, all of which have ended or are on hold. Raises `StoreSuspended` before anything goes."""
    if reason := (yield Step("store", kept.store.suspended)):
        raise StoreSuspended(reason)
    for session_id in session_ids:
        yield Step("disk", partial(kept.remove_files, session_id))
    left = list(session_ids)
    while left:
        left = yield Step("store", partial(kept.store.sessions.delete, left))
    return len(session_ids)


def forgotten(kept: Retention, session_ids: Sequence[str]) -> Steps:
    """Delete these sessions, and people's messages to sessions that no longer exist."""
    gone = yield from deletion(kept, session_ids)
    yield from _emptied(kept)
    return gone


def _emptied(kept: Retention) -> Generator[Step, Any, None]:
    after: int | None = 0
    while after is not None:
        after = yield Step("store", partial(kept.store.inbox.empty, after))


def sessions_round(kept: Retention, before: str) -> Steps:
    """Delete all sessions that ended before that time."""
    gone = 0
    while found := (yield Step("store", lambda: kept.store.sessions.ended(before, limit=_AT_ONCE))):
        gone += yield from deletion(kept, found)
    return gone


def orphans_round(kept: Retention, blobs: Blobs, now: float) -> Steps:
    """Delete the files of sessions that a crash kept from being stored, once they are as old as the retention."""
    gone = 0
    for session_id in (yield Step("disk", blobs.sessions)):
        if (yield Step("store", partial(kept.store.sessions.head, session_id))) is not None:
            continue
        if (yield Step("disk", partial(blobs.age, session_id, now))) > kept.days * 86400:
            yield Step("disk", partial(kept.remove_files, session_id))
            gone += 1
    return gone


def full_round(kept: Retention, now: str) -> Steps:
    """Delete everything older than the retention, and record the time."""
    before = timestamps.after(now, -kept.days * 86400)
    keys = timestamps.after(now, -(kept.days + KEYS_LONGER_DAYS) * 86400)
    gone = yield from sessions_round(kept, before)
    if gone:
        yield from _emptied(kept)
    at: Sweep | None = Sweep(before, keys)
    while at is not None:
        at = yield Step("store", partial(kept.store.sweep, at))
    moment = timestamps.from_text(now).timestamp()
    if kept.blobs is not None:
        yield from orphans_round(kept, kept.blobs, moment)
    yield Step("store", lambda: kept.store.marks.move(DONE, f"{moment:.6f}"))
    return gone


def is_due(store: Store, now: str) -> bool:
    """True if the last round is an hour old."""
    last = store.marks.ts(DONE)
    return last is None or timestamps.from_text(now).timestamp() - float(last) >= EVERY_SECONDS


def at_once(steps: Steps, seconds: float | None = None) -> int | None:
    """Take the steps in this process; how many sessions went, or None when the time was over first."""
    until = None if seconds is None else time.monotonic() + seconds
    outcome: Any = None
    while True:
        try:
            outcome = steps.send(outcome).work()
        except StopIteration as end:
            return int(end.value)
        if until is not None and time.monotonic() > until:
            return None


async def in_turn(steps: Steps, writer: Writer) -> int:
    """Take the steps while others write: each waits for its turn, and lets them continue after it."""
    outcome: Any = None
    while True:
        try:
            step = steps.send(outcome)
        except StopIteration as end:
            return int(end.value)
        if step.where == "disk":
            outcome = await asyncio.to_thread(step.work)
        else:
            outcome = await writer.call(step.work)
            await asyncio.sleep(PAUSE_SECONDS)


def clean_up(settings: Settings, store: Store, now: str) -> None:
    """Do some of a round at the end of a command that wrote. Failures do not affect the command."""
    try:
        if is_due(store, now):
            at_once(full_round(Retention.of(settings, store), now), COMMAND_SECONDS)
    except (SaysoError, OSError) as error:
        log.warning("old sessions are deleted later: %s", error)
