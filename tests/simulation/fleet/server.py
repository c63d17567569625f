"""The database of a fleet: one store of rows, and which processes hold which leases."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engine.journal.records import Commit, Consumed, InboxRow, Row
from engine.language.errors import StorageBroken, StorageBusy
from engine.storage.connection import Connection
from engine.storage.leases import MemoryOwners, new_owner_id
from engine.storage.open import MemoryDatabase
from engine.storage.postgres_connection import PostgresConnection
from engine.storage.postgres_leases import LEASE_SECONDS
from engine.storage.sealing import Sealer
from engine.storage.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.simulation.fleet.worker import Worker
    from tests.simulation.fleet.world import FleetWorld

KEY = b"the key of the simulation"


class Server:
    """The rows, and the leases. It ends the leases of a process that it has not heard of for `LEASE_SECONDS`."""

    def __init__(self, world: FleetWorld) -> None:
        self.world = world
        self.database = MemoryDatabase(KEY)
        self.owners: dict[str, Worker] = {}
        self.hidden: set[int] = set()
        """Inbox rows whose transaction has its ids, and is not committed yet."""

    def open(self, worker: Worker | None = None) -> FleetStore:
        """A connection of a worker; or of the world, which is always reached."""
        return FleetStore(self, worker)

    def silent(self, worker: Worker, since: float) -> None:
        """Nothing is heard of a worker from now on: it froze, or is cut off."""
        worker.spell += 1
        spell = worker.spell
        worker.confirmed = since
        left = since + LEASE_SECONDS - self.world.timeline.now
        self.world.timeline.after(max(0.0, left), lambda: self._end_if_silent(worker, spell))

    def _end_if_silent(self, worker: Worker, spell: int) -> None:
        if worker.spell == spell:
            self.world.note(f"the lease of {worker.number} ends")
            self.end(worker)

    def end(self, worker: Worker) -> None:
        """End all leases of a worker."""
        worker.leased = False
        self.owners = {owner: one for owner, one in self.owners.items() if one is not worker}
        self.world.lease_ended(worker)


class FleetOwners(MemoryOwners):
    """The owners as a worker sees them."""

    def __init__(self, server: Server, worker: Worker | None) -> None:
        super().__init__({})
        self._server, self._worker = server, worker

    def register(self, label: str) -> str:
        """See `PostgresOwners.register`."""
        owner = new_owner_id(label)
        assert self._worker is not None
        self._server.owners[owner] = self._worker
        return owner

    def alive(self, owner: str) -> bool:
        """Whether the server has not ended that lease."""
        return owner in self._server.owners

    def living(self) -> list[str]:
        """The ids of all owners that live, sorted."""
        return sorted(self._server.owners)

    def close(self) -> None:
        """Stop being any owner."""
        if self._worker is not None:
            self._server.end(self._worker)


class FleetConnection(Connection):
    """A connection that refuses what `PostgresConnection` refuses: without a network, and without a lease."""

    def __init__(self, server: Server, worker: Worker | None) -> None:
        self._worker, self.url = worker, "postgresql://fleet"
        super().__init__(server.database.path, "memdb")

    @property
    def broken(self) -> str | None:
        """See `PostgresConnection.broken`."""
        return None if self._worker is None else self._worker.lost

    def leased(self) -> bool:
        """See `PostgresConnection.leased`."""
        return self._worker is None or self._worker.fresh()

    def _usable(self) -> None:
        super()._usable()
        if self.broken is not None:
            raise StorageBroken(self.broken)
        if self._worker is not None and self._worker.cut_off:
            raise StorageBusy("the server cannot be reached")

    @contextlib.contextmanager
    def write(self, *, suspended: bool = False) -> Iterator[None]:
        """See `PostgresConnection.write`."""
        self._usable()
        PostgresConnection._may_write(self)  # type: ignore[arg-type]  # it has what that looks at
        with super().write(suspended=suspended):
            yield
            PostgresConnection._may_write(self)  # type: ignore[arg-type]
        if self._worker is not None:
            self._worker.world.wrote(self._worker)


class FleetStore(SqliteStore):
    """The store of a worker."""

    def __init__(self, server: Server, worker: Worker | None) -> None:
        connection = FleetConnection(server, worker)
        super().__init__(connection, Sealer(KEY), FleetOwners(server, worker))
        self._server, self._worker = server, worker

    def commit(self, batch: Sequence[Commit]) -> list[Exception | None]:
        """See `Store.commit`; what is accepted is looked at."""
        found = super().commit(batch)
        for commit, refusal in zip(batch, found, strict=True):
            if refusal is None and self._worker is not None:
                self._server.world.accepted(self._worker, commit)
        return found

    def consume(self, consumed: Sequence[Consumed], now: str, rows: Sequence[Row] = ()) -> None:
        """See `Store.consume`."""
        super().consume(consumed, now, rows)
        self._server.world.consumed(consumed)

    def inbox(self, *, after: int = 0, limit: int | None = 100) -> list[InboxRow]:
        """See `Store.inbox`: without what no transaction has committed yet."""
        hidden = self._server.hidden
        if not hidden:
            return super().inbox(after=after, limit=limit)
        rows = [row for row in super().inbox(after=after, limit=None) if row.id not in hidden]
        return rows[:limit]

    def inbox_row(self, key: str) -> InboxRow | None:
        """See `Store.inbox_row`."""
        row = super().inbox_row(key)
        return None if row is not None and row.id in self._server.hidden else row
