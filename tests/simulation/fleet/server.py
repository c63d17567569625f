"""The database of a fleet: one store of rows, and which processes hold which leases."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from engine.journal.records import Commit, Consumed, InboxRow, Row, Stored
from engine.language.errors import StorageBroken, StorageBusy
from engine.storage.connection import SqliteConnection
from engine.storage.leases import MemoryOwners, new_owner_id
from engine.storage.open import MemoryDatabase
from engine.storage.postgres_connection import PostgresConnection
from engine.storage.postgres_leases import LEASE_SECONDS, PING_SECONDS
from engine.storage.rows import InboxTable
from engine.storage.sealing import Sealer
from engine.storage.sqlite import SqliteStore
from engine.storage.store import PartResult

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
        self.names: dict[str, Worker] = {}
        """The named leases, and whose they are."""
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
        self.names = {name: one for name, one in self.names.items() if one is not worker}
        # Others see it with their next sign of life.
        self.world.tell("peers", PING_SECONDS)


class FleetOwners(MemoryOwners):
    """The owners as a worker sees them."""

    def __init__(self, server: Server, worker: Worker | None) -> None:
        super().__init__({})
        self._server, self._worker = server, worker

    def register(self, label: str) -> str:
        """See `PostgresOwners.register`."""
        owner = new_owner_id(label)
        assert self._worker is not None
        if not self._worker.leased:
            raise StorageBroken("the server ended the connection while this process began")
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


class FleetConnection(SqliteConnection):
    """A connection that refuses what `PostgresConnection` refuses: without a network, and without a lease."""

    def __init__(self, server: Server, worker: Worker | None) -> None:
        self._worker, self.url = worker, "postgresql://fleet"
        self._words: set[str] = set()
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
        self._words.clear()
        with super().write(suspended=suspended):
            yield
            PostgresConnection._may_write(self)  # type: ignore[arg-type]
        if self._worker is not None:
            self._worker.world.wrote(self._worker, self._words)

    def notify(self, word: str) -> None:
        """See `Database.notify`."""
        self._words.add(word)


class FleetStore(SqliteStore):
    """The store of a worker."""

    shared = True

    def __init__(self, server: Server, worker: Worker | None) -> None:
        connection = FleetConnection(server, worker)
        super().__init__(connection, Sealer(KEY), FleetOwners(server, worker))
        self._server, self._worker = server, worker
        self.inbox = FleetInbox(self._db, self._sealer)
        self.inbox.of(server, worker)

    def generation(self) -> int:
        """See `Fence`."""
        return 0 if self._worker is None else self._worker.generation

    def holds(self, generation: int) -> bool:
        """See `Fence`."""
        worker = self._worker
        return worker is None or (worker.fresh() and worker.generation == generation)

    def lease(self, name: str) -> bool:
        """See `Store.lease`."""
        self._reached()
        assert self._worker is not None
        return self._server.names.setdefault(name, self._worker) is self._worker

    def unlease(self, name: str, *, tell: bool = False) -> None:
        """See `Store.unlease`. The network brings it later, or the lease ends with the others."""
        if self._server.names.get(name) is self._worker:
            del self._server.names[name]
        if tell:
            self._server.world.tell("all")

    def peers(self) -> dict[str, str]:
        """See `Store.peers`."""
        return dict.fromkeys(self._server.owners, "all")

    def _reached(self) -> None:
        self._db._usable()  # type: ignore[attr-defined]  # a connection's
        if self._worker is not None and not self._worker.leased:
            raise StorageBusy("the connection that carries the leases is gone")

    def commit(self, batch: Sequence[Commit]) -> list[PartResult]:
        """See `Store.commit`; what is accepted is looked at."""
        found = super().commit(batch)
        for commit, result in zip(batch, found, strict=True):
            if isinstance(result, Stored) and self._worker is not None:
                self._server.world.accepted(self._worker, commit)
        return found

    def consume(self, consumed: Sequence[Consumed], now: str, rows: Sequence[Row] = ()) -> None:
        """See `Store.consume`."""
        super().consume(consumed, now, rows)
        self._server.world.consumed(consumed)


class FleetInbox(InboxTable):
    """The inbox of a worker: without what no transaction has committed yet."""

    def of(self, server: Server, worker: Worker | None) -> None:
        """Say whose it is."""
        self._server, self._worker = server, worker

    def rows(self, *, after: int = 0, limit: int | None = 100) -> list[InboxRow]:
        """See `InboxTable.rows`."""
        rows = [row for row in super().rows(after=after, limit=None) if row.id not in self._server.hidden]
        return rows[:limit]

    def lanes(self, kinds: Collection[str]) -> list[tuple[str, int, int]]:
        """See `InboxTable.lanes`."""
        if self._worker is not None:
            self._server.world.looks(self._worker)
        if not self._server.hidden:
            return super().lanes(kinds)
        found: dict[str, list[int]] = {}
        for row in self.rows(limit=None):
            if row.kind in kinds:
                found.setdefault(row.thread_key or row.session_id or row.key, []).append(row.id)
        return [(lane, max(ids), len(ids)) for lane, ids in found.items()]

    def lane(self, lane: str) -> list[InboxRow]:
        """See `InboxTable.lane`."""
        return [row for row in super().lane(lane) if row.id not in self._server.hidden]

    def row(self, key: str) -> InboxRow | None:
        """See `InboxTable.row`."""
        row = super().row(key)
        return None if row is not None and row.id in self._server.hidden else row
