"""The database of a fleet: one store of rows, with the lanes and the signs of life of its workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from engine.journal.records import Commit, Consumed, InboxRow, Row, Stored
from engine.language.errors import StorageBusy
from engine.storage.lanes import LIMIT_SECONDS, Lane, LaneTable
from engine.storage.rows import InboxTable
from engine.storage.sealing import Sealer
from engine.storage.sqlite import SqliteStore
from engine.storage.store import PartResult
from tests.support.lanes import LanedConnection, Workers, laned_database

if TYPE_CHECKING:
    from tests.simulation.fleet.worker import Worker
    from tests.simulation.fleet.world import FleetWorld

KEY = b"the key of the simulation"


class Server:
    """The rows."""

    def __init__(self, world: FleetWorld) -> None:
        self.world = world
        self.database = laned_database(KEY)
        self.hidden: set[int] = set()
        """Inbox rows whose transaction has its ids, and is not committed yet."""

    def open(self, worker: Worker | None = None) -> FleetStore:
        """A connection of a worker; or of the world, which is always reached."""
        return FleetStore(self, worker)

    def owner_of(self, lane: str) -> str | None:
        """Whose a lane is."""
        with self.world.store._db.read():
            row = self.world.store._db.one("SELECT owner FROM lanes WHERE key = ?", (lane,))
        return row and row[0]


class FleetOwners(Workers):
    """The workers as one of them sees them."""

    ahead = 0

    def __init__(self, db: LanedConnection, worker: Worker | None) -> None:
        super().__init__(db)
        self._worker = worker

    def register(self, label: str) -> str:
        """See `Workers.register`."""
        assert self._worker is not None
        if self._worker.cut_off:
            raise StorageBusy("the server cannot be reached")
        self.owner = f"{label}-{self._worker.number}-0123456789abcdef"
        self._worker.beat()
        return self.owner

    def alive(self, owner: str) -> bool:
        """See `postgres_workers.Workers.alive`."""
        with self._db.read():
            known = self._db.one("SELECT 1 FROM workers WHERE id = ?", (owner,)) is not None
        settled = self._worker is None or self._worker.signs.unbroken() >= LIMIT_SECONDS
        return super().alive(owner) or (known and not settled)


class FleetConnection(LanedConnection):
    """A connection that refuses what `PostgresConnection` refuses without a network."""

    def __init__(self, server: Server, worker: Worker | None) -> None:
        self._worker = worker
        self._tell = False
        super().__init__(server.database, lambda: server.world.timeline.now)

    def _usable(self) -> None:
        super()._usable()
        if self._worker is not None and self._worker.cut_off:
            raise StorageBusy("the server cannot be reached")

    @contextlib.contextmanager
    def write(self, *, suspended: bool = False) -> Iterator[None]:
        """See `PostgresConnection.write`."""
        self._tell = False
        with super().write(suspended=suspended):
            yield
        if self._worker is not None and self._tell:
            self._worker.world.tell()

    def notify(self) -> None:
        """See `Database.notify`."""
        self._tell = True


class FleetStore(SqliteStore):
    """The store of a worker."""

    shared = True

    def __init__(self, server: Server, worker: Worker | None) -> None:
        connection = FleetConnection(server, worker)
        super().__init__(connection, Sealer(KEY), FleetOwners(connection, worker))
        self._server, self._worker = server, worker
        self.lanes = FleetLanes(connection, self._sealer)
        if worker is not None:
            self.lanes.looks = lambda: server.world.looks(worker)
        self.inbox = FleetInbox(connection, self._sealer, self.lanes)
        self.inbox.hidden = server.hidden
        self.outbox._inbox = self.inbox

    def generation(self) -> int:
        """See `Fence`."""
        return 0 if self._worker is None else self._worker.signs.generation

    def holds(self, generation: int) -> bool:
        """See `Fence`."""
        signs = None if self._worker is None else self._worker.signs
        return signs is None or (signs.fresh() and signs.generation == generation)

    def peers(self) -> dict[str, str]:
        """See `Store.peers`."""
        return {owner: "all" for owner in self._owners.living() if owner != self.lanes.owner}

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


class FleetLanes(LaneTable):
    """The lanes of a worker."""

    looks: Callable[[], None] = staticmethod(lambda: None)

    def take(
        self, limit: int, avoided: Iterable[str] = (), only: str | None = None, *, soon: bool = False
    ) -> list[Lane]:
        """See `LaneTable.take`."""
        self.looks()
        return super().take(limit, avoided, only, soon=soon)


class FleetInbox(InboxTable):
    """The inbox of a worker: without what no transaction has committed yet."""

    hidden: set[int]

    def rows(self, *, after: int = 0, limit: int | None = 100) -> list[InboxRow]:
        """See `InboxTable.rows`."""
        rows = [row for row in super().rows(after=after, limit=None) if row.id not in self.hidden]
        return rows[:limit]

    def lane(self, lane: str) -> list[InboxRow]:
        """See `InboxTable.lane`."""
        return [row for row in super().lane(lane) if row.id not in self.hidden]

    def row(self, key: str) -> InboxRow | None:
        """See `InboxTable.row`."""
        row = super().row(key)
        return None if row is not None and row.id in self.hidden else row
