"""Progress of threads that were not read: known from messages delivered while the bot was connected.

A catch-up read skips a thread whose last message is known. Without this every thread whose last message was delivered
would be read at each start. A note counts when it is ten minutes old, since Slack redelivers for six: by then no older
message is still on its way. It counts only if all sockets have delivered something since, for a deaf one may have lost
earlier messages. Unacknowledged events, and Slack's notice that it drops events, end all noting until all is read
again.

`known:` marks only tell which threads need no read. Only a completed read decides where the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.storage.group_commit import Writer
from engine.storage.store import Store

NOTED_SECONDS = 600.0
"""Seconds after which no message older than a delivered one is still on its way."""

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
        """Note a delivered message of this thread, stored if it is for us."""
        if self._sound:
            self._recent[key] = max(ts, self._recent.get(key, ts), key=float)

    def lost(self) -> None:
        """Stop noting until all is read again: messages may be lost although the bot is connected."""
        self._forget(sound=False)

    def begin(self) -> None:
        """Restart noting after a gap: all will be read, so only later deliveries count."""
        self._forget(sound=True)

    def _forget(self, *, sound: bool) -> None:
        self._sound = sound
        self._recent, self._older, self._turned = {}, {}, self._steady()

    async def settle(self, unread: Callable[[str], bool], carried: Callable[[float], bool]) -> None:
        """Keep notes that are old enough. `unread` is True for threads that are to be read anyway, `carried` if all
        sockets have delivered something since then."""
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
    """Return by thread the newest message that was read or delivered; threads without one are left out."""
    known: dict[str, str] = {}
    for key in keys:
        for ts in (store.marks.ts(f"thread:{key}"), store.marks.ts(f"known:{key}")):
            if ts is not None:
                known[key] = max(ts, known.get(key, ts), key=float)
    return known


def _keep(store: Store, key: str, ts: str) -> None:
    if store.sessions.heads(statuses=OPEN, thread_key=key, limit=1):
        store.marks.move(f"known:{key}", ts)
