"""What a worker posts while it has the lane `send`: as `Outbound` does it, and with one kind of row."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bot.serve.roles import Replica
from engine.journal.records import OutboxRow
from engine.language.codec import decode
from engine.language.errors import FenceLost, StorageBroken, StorageError
from engine.nodes.runtime.effects import under
from engine.run.remote_commands import item
from engine.storage.fence import WorkPermit
from engine.storage.lanes import SEND

if TYPE_CHECKING:
    from tests.simulation.fleet.worker import Worker

POLL_SECONDS = 0.5


class Poster:
    """Posts what `message` nodes say, of each lane of the outbox one row at a time."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._store, self._call = worker, worker.store, worker.writer.call
        self.replica = Replica(worker.writer, "worker")
        self._generation = -1
        self._out: dict[str, tuple[OutboxRow, asyncio.Task[None]]] = {}
        self._woken = asyncio.Event()

    def look(self) -> None:
        """See `Store.listen`."""
        self._woken.set()

    async def run(self) -> None:
        """Post whenever this process is the one that does."""
        await self.replica.hold(SEND, self._post)

    async def _post(self) -> None:
        try:
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
        finally:
            if tasks := [task for _, task in self._out.values()]:
                await asyncio.wait(tasks, timeout=5)
            for task in tasks:
                task.cancel()

    async def _look(self) -> None:
        for lane in [lane for lane, (_, task) in self._out.items() if task.done()]:
            del self._out[lane]
        generation = self._store.generation()
        if generation != self._generation and not await self.replica.still(SEND):
            return
        self._generation = generation
        now = self._worker.world.now()
        for row in await self._call(self._store.outbox.due, now=now, limit=100):
            if row.lane not in self._out:
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
