"""Until where a thread is known although it was not read: by what was delivered while the bot was connected.

A catch-up read leaves a thread alone whose last message is known. Without this every thread whose last word was delivered
would be read at each start. A note counts when it is ten minutes old, since Slack delivers again for six: by then nothing
older is still on its way. It counts only if all sockets have carried something since, for a deaf one may have swallowed what
was said before. What was not acknowledged, and Slack's own word that it drops events, end all noting until all is read again.

`known:` marks only say which threads need no read. From where a thread is read, only a completed read says.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.storage.group_commit import Writer
from engine.storage.store import Store

NOTED_SECONDS = 600.0
"""After how long nothing older than a delivered message is still on its way."""

OPEN = ("running", "paused")
"""Statuses of sessions that somebody may still say something to."""


class Delivered:
    """The newest delivered messages, by thread."""

    def __init__(self, writer: Writer, steady: Callable[[], float]) -> None:
        self._writer = writer
        self._steady = steady
        self._recent: dict[str, str] = {}
        self._older: dict[str, str] = {}
        self._turned = steady()
        self._sound = True

    def note(self, key: str, ts: str) -> None:
        """A message of this thread was delivered, and stored if it is for us."""
        if self._sound:
            self._recent[key] = max(ts, self._recent.get(key, ts), key=float)

    def lost(self) -> None:
        """Something may have been lost although the bot is connected: nothing is noted until all is read again."""
        self._forget(sound=False)

    def begin(self) -> None:
        """There was a gap, and all will be read: only what is delivered from now on is noted."""
        self._forget(sound=True)

    def _forget(self, *, sound: bool) -> None:
        self._sound = sound
        self._recent, self._older, self._turned = {}, {}, self._steady()

    async def settle(self, unread: Callable[[str], bool], carried: Callable[[float], bool]) -> None:
        """Keep what is old enough. `unread` tells threads that are to be read anyway, `carried` whether all sockets have
        carried something since then."""
        if self._steady() - self._turned < NOTED_SECONDS:
            return
        kept = carried(self._turned)
        settled = self._older if kept else {}
        self._older = self._recent if kept else {**self._older, **self._recent}
        self._recent, self._turned = {}, self._steady()
        for key, ts in settled.items():
            if self._sound and not unread(key):
                await self._writer.call(_keep, self._writer.store, key, ts)


def known_until(store: Store, keys: list[str]) -> dict[str, str]:
    """By thread the newest message that was read or delivered; those without one are left out."""
    known: dict[str, str] = {}
    for key in keys:
        for ts in (store.marks.ts(f"thread:{key}"), store.marks.ts(f"known:{key}")):
            if ts is not None:
                known[key] = max(ts, known.get(key, ts), key=float)
    return known


def _keep(store: Store, key: str, ts: str) -> None:
    if store.sessions.heads(statuses=OPEN, thread_key=key, limit=1):
        store.marks.move(f"known:{key}", ts)
