"""Stores in memory that stand for processes which serve one database together: with lanes, by the statements of Postgres."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.storage.connection import SqliteConnection
from engine.storage.lanes import LANE_TABLES
from engine.storage.leases import Member, new_owner_id
from engine.storage.open import MemoryDatabase
from engine.storage.sealing import Sealer
from engine.storage.sqlite import SqliteStore

_BEAT = """INSERT INTO workers VALUES (?1, 0, moment(?3), moment(0), moment(0), 'here', '', '', '', 0)
 ON CONFLICT (id) DO UPDATE SET beat = moment(?3), since = CASE WHEN beat < moment(?2) THEN moment(0) ELSE since END"""
_LIVES = "SELECT 1 FROM workers WHERE id = ? AND beat >= moment(?)"


def laned_database(key: bytes = b"k" * 32) -> MemoryDatabase:
    """An empty database with lanes."""
    database = MemoryDatabase(key)
    connection = database.connect()
    connection.execute(LANE_TABLES)
    connection.close()
    return database


class LanedConnection(SqliteConnection):
    """A connection to it, by a clock of the test."""

    laned = True

    def __init__(self, database: MemoryDatabase, clock: Callable[[], float] = time.time) -> None:
        super().__init__(database.path, "memdb")
        self.raw.create_scalar_function("moment", lambda ms: clock() + ms / 1000)


class Workers:
    """The workers of such a database; they live until they are closed, or a test says otherwise."""

    ahead = 3_600_000
    """For how many milliseconds a sign of life counts."""

    def __init__(self, db: LanedConnection) -> None:
        self._db = db
        self.owner = ""

    def register(self, label: str) -> str:
        """Become a worker."""
        self.owner = self.owner or new_owner_id(label)
        self.beat()
        return self.owner

    def beat(self) -> None:
        """Give a sign of life."""
        with self._db.write():
            self._db.run(_BEAT, (self.owner, -4000, self.ahead))

    def alive(self, owner: str) -> bool:
        """True if signs of its life are young."""
        with self._db.read():
            return self._db.one(_LIVES, (owner, -4000)) is not None

    def living(self) -> list[str]:
        """The ids of all that live."""
        with self._db.read():
            return [row[0] for row in self._db.all("SELECT id FROM workers ORDER BY 1") if self.alive(row[0])]

    def note(self, text: str | None) -> None:
        """Nobody reads it."""

    def notes(self) -> list[str]:
        """None."""
        return []

    def close(self) -> None:
        """Let all lanes go."""
        owner, self.owner = self.owner, ""
        if not owner:
            return
        with self._db.write():
            self._db.run("UPDATE lanes SET owner = NULL, wake_at = moment(0) WHERE owner = ?", (owner,))
            self._db.run("DELETE FROM workers WHERE id = ?", (owner,))


class LanedStore(SqliteStore):
    """The store of one process of several."""

    shared = True

    def __init__(self, database: MemoryDatabase | None = None) -> None:
        self.database = database or laned_database()
        connection = LanedConnection(self.database)
        super().__init__(connection, Sealer(self.database.key), Workers(connection))

    def another(self) -> LanedStore:
        """A second process."""
        return LanedStore(self.database)

    def members(self) -> list[Member]:
        """Nobody asks."""
        return []
