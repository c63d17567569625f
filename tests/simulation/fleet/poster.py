"""What a worker posts: as `Outbound` does it, with its real shards, and with one kind of row."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bot.outbound.shards import Shards
from engine.journal.records import OutboxRow
from engine.language.codec import decode
from engine.language.errors import FenceLost, StorageBroken, StorageError
from engine.nodes.runtime.effects import under
from engine.run.remote_commands import item
from engine.storage.fence import WorkPermit

if TYPE_CHECKING:
    from tests.simulation.fleet.worker import Worker

POLL_SECONDS = 5.0


class Poster:
    """Posts what `message` nodes say: of each lane one row at a time, of the channels that are this worker's."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._store, self._call = worker, worker.store, worker.writer.call
        self._shards = Shards(worker.writer, lambda: len(worker.store.peers()), self._head)
        self._out: dict[str, tuple[OutboxRow, asyncio.Task[None]]] = {}
        self._woken = asyncio.Event()

    async def _head(self, session_id: str) -> object:
        return await self._call(self._store.sessions.head, session_id)

    def told(self, word: str) -> None:
        """See `Store.listen`."""
        if word in ("all", "peers"):
            self._shards.look_again()
        self._woken.set()

    async def run(self) -> None:
        """Post for ever. Raises `StorageBroken`."""
        while True:
            try:
                await self._look()
            except StorageBroken:
                raise
            except StorageError as error:
                self._worker.world.note(f"{self._worker.number} posts nothing: {error}")
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._woken.wait()
            except TimeoutError:
                continue
            finally:
                self._woken.clear()

    async def leave(self) -> None:
        """Post what is on its way, and let others have the channels."""
        if self._out:
            await asyncio.wait([task for _, task in self._out.values()])
        await self._shards.give_up()

    async def _look(self) -> None:
        for lane in [lane for lane, (_, task) in self._out.items() if task.done()]:
            del self._out[lane]
        shards, generation = self._shards, self._store.generation()
        await shards.share({await shards.of(row) for row, _ in self._out.values()})
        now = self._worker.world.now()
        for row in await self._call(self._store.outbox.due, now=now, limit=100):
            if row.lane not in self._out and await shards.of(row) in shards.mine:
                with under(WorkPermit(self._store, generation)):
                    self._out[row.lane] = row, asyncio.create_task(self._send(row))

    async def _send(self, row: OutboxRow) -> None:
        try:
            now = self._worker.world.now()
            if not await self._call(self._store.outbox.attempt, row.id, row.attempts, now):
                return
            await self._worker.post(row)
            data = decode(row.payload)
            place = {"path": data["path"], "attempt": data["attempt"]}
            told = item(f"delivered:{row.key}", row.session_id or "", "delivered", **place, output={})
            now = self._worker.world.now()
            await self._call(self._store.outbox.finish, row.id, row.rev, now=now, state="sent", items=[told])
        except (StorageError, ConnectionError, FenceLost) as error:
            self._worker.world.note(f"{row.key} was not posted: {error}")
            await asyncio.sleep(1.0)
        finally:
            self._woken.set()
