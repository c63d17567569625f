"""Shards of the outbox: of several processes that send, one has each channel, so a channel never sees two posters.

A row belongs to the channel of its session's thread, so all that a session shows has one order; a row without a session to
the channel that it names. A shard is given up only while nothing of it is on its way, and what is read after its lease was
taken was recorded by whoever had it before. A crash: the leases end, and others look up what may have been sent, as always.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from zlib import crc32

from bot.outbound.turns import channel_of
from engine.journal.records import Head, OutboxRow
from engine.language.errors import StorageError
from engine.storage.group_commit import Writer

SHARDS = 16
LOOK_SECONDS = 30.0
"""How often a process that has less than its part looks for free shards although nobody gave one back."""
_MOST_KNOWN = 20_000


def shard_of(channel: str) -> int:
    """The shard of a channel."""
    return crc32(channel.encode()) % SHARDS


def lease_of(shard: int) -> str:
    """The name of a shard's lease."""
    return f"shard {shard}"


class Shards:
    """The shards that this process has."""

    def __init__(
        self, writer: Writer, posters: Callable[[], int], head: Callable[[str], Awaitable[Head | None]]
    ) -> None:
        """`posters` is how many processes send, this one included; `head` gives a session's."""
        self._writer, self._posters, self._head = writer, posters, head
        self.mine: set[int] = set()
        self._order = random.sample(range(SHARDS), SHARDS)
        self._channels: dict[str, str] = {}
        self._look_at = 0.0

    def look_again(self) -> None:
        """Somebody came, went, or gave something back."""
        self._look_at = 0.0

    async def share(self, busy: Collection[int]) -> None:
        """Take free shards up to a fair part, and give up what is beyond it, but for those that are `busy`."""
        most, now = -(-SHARDS // max(1, self._posters())), asyncio.get_running_loop().time()
        beyond = len(self.mine) - most
        await self._give_up([shard for shard in self.mine if shard not in busy][: max(0, beyond)])
        if beyond >= 0 or now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        try:
            for shard in self._order:
                if shard not in self.mine and await self._writer.call(
                    self._writer.store.lease, lease_of(shard)
                ):
                    self.mine.add(shard)
                    if len(self.mine) == most:
                        return
        except StorageError:
            self.look_again()
            raise

    async def give_up(self) -> None:
        """Let others have all of them: nothing is on its way."""
        await self._give_up(list(self.mine))

    async def _give_up(self, shards: Iterable[int]) -> None:
        for shard in shards:
            self.mine.discard(shard)
            await self._writer.call(lambda name: self._writer.store.unlease(name, tell=True), lease_of(shard))

    async def of(self, row: OutboxRow) -> int:
        """The shard of a row."""
        channel = channel_of(row)
        if row.session_id is not None:
            if row.session_id not in self._channels:
                if len(self._channels) > _MOST_KNOWN:
                    self._channels.clear()
                head = await self._head(row.session_id)
                thread = (head.thread_key or "").split(":") if head is not None else []
                self._channels[row.session_id] = thread[1] if len(thread) > 1 else channel
            channel = self._channels[row.session_id]
        return shard_of(channel)

    def has(self, channel: str) -> bool:
        """Whether this process posts in a channel."""
        return shard_of(channel) in self.mine
