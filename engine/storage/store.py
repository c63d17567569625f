"""A store: what it does beside its rows, and what all of it is.

Two transactions carry everything. *Ingest* stores what came from outside under a key that is unique; only after
it returned may Slack be told that the delivery was taken. *Commit* appends a session's events together with all
that follows from them (consumed inbox rows, prompts, timers, outbox intents, snapshot) or nothing at all; it
carries the epoch and the seq that the writer believes in, and stores nothing when either has moved on.

A store is synchronous. `engine.storage.group_commit.Writer` runs it on one thread and groups commits.
Times are UTC ISO-8601 text with milliseconds and `Z` (`2026-11-21T22:40:00.000Z`), which sort as they compare.
Bodies are bytes that the caller encoded; a backend stores them, gives them a MAC, and never looks inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from engine.language.errors import Corrupt, KeyMissing, StorePlain, WrongWorkspace
from engine.storage.database import Database
from engine.storage.deletion import SessionDeletion
from engine.storage.leases import (
    FreeLease,
    Holder,
    Member,
    Served,
    Serving,
    label_of,
    note_of,
    read_holder,
    try_lease,
)
from engine.storage.sealing import BEGINS, JournalRecord, Sealer, check_chain
from engine.storage.tables import reads, session_number

if TYPE_CHECKING:
    from engine.storage.vault import Vault

_JOURNAL = "SELECT seq, version, body, mac FROM journal WHERE session = ? ORDER BY seq"
_ANY_KEY = "SELECT 1 FROM data_keys LIMIT 1"
_ANY_BODY = """SELECT EXISTS (SELECT 1 FROM journal) OR EXISTS (SELECT 1 FROM inbox) OR EXISTS (SELECT 1 FROM prompts)
 OR EXISTS (SELECT 1 FROM outbox) OR EXISTS (SELECT 1 FROM flows) OR EXISTS (SELECT 1 FROM kept)"""
"""True where something was written that is encrypted wherever keys are set."""
META = "SELECT value, mac FROM meta WHERE name = ?"
PUT_META = """INSERT INTO meta (name, value, mac) VALUES (?, ?, ?)
 ON CONFLICT (name) DO UPDATE SET value = excluded.value, mac = excluded.mac"""
_ANY_ROW = """SELECT EXISTS (SELECT 1 FROM sessions) OR EXISTS (SELECT 1 FROM journal)
 OR EXISTS (SELECT 1 FROM inbox) OR EXISTS (SELECT 1 FROM prompts) OR EXISTS (SELECT 1 FROM timers)
 OR EXISTS (SELECT 1 FROM outbox) OR EXISTS (SELECT 1 FROM marks)
 OR EXISTS (SELECT 1 FROM meta WHERE name = 'workspace')"""


class AnyOwners(Protocol):
    """The owners of one database, whatever keeps their leases."""

    def register(self, label: str) -> str:
        """Become an owner that lives until this process ends or `close()`."""

    def alive(self, owner: str) -> bool:
        """Whether that owner lives."""

    def living(self) -> list[str]:
        """The ids of all owners that live, sorted."""

    def note(self, text: str | None) -> None:
        """Leave a note, for `notes`; None takes it back."""

    def notes(self) -> list[str]:
        """What living owners have noted."""

    def close(self) -> None:
        """Stop being any owner."""


class Store(SessionDeletion):
    """A store on a database. Every method is one transaction; all raise `StorageError` subclasses and nothing else. Threads
    may share it; their calls run one after the other."""

    file: Path | None = None
    """The database's file; None for one in memory or on a server."""
    dated = True
    """Whether it is known how new the database has to be: one that was put back to an older state is suspended."""
    shared = False
    """Whether several processes may serve this store at once: each takes work under a `lease`."""

    def __init__(self, db: Database, sealer: Sealer, owners: AnyOwners, vault: Vault | None = None) -> None:
        """Made by those that open databases."""
        super().__init__(db, sealer, owners.alive)
        self.vault = vault
        if vault is not None:
            vault.owned = self._known
        self._owners = owners
        self._version = db.data_version()

    def close(self) -> None:
        """Close; durable already, so nothing is flushed."""
        self._owners.close()
        self._db.watch.close()
        self._db.close()

    def bind(self, team_id: str, app_id: str) -> None:
        """Bind this database to a Slack team and app at the first call; `WrongWorkspace` for another one later."""
        value = f"{team_id} {app_id}"
        mac = self._sealer.mac(b"meta", "workspace", value)
        with self._db.read():
            row = self._db.one(META, ("workspace",))
        if row is None:
            with self._db.write():
                row = self._db.one(META, ("workspace",))
                if row is None:
                    self._db.run(PUT_META, ("workspace", value, mac))
        if row is None or row == (value, mac):
            return
        if row[1] != self._sealer.mac(b"meta", "workspace", row[0]):
            raise Corrupt("The note of which Slack team this database belongs to was changed.")
        team, _, app = row[0].partition(" ")
        raise WrongWorkspace(
            f"This database belongs to Slack team {team}, app {app}, not to team {team_id}, app {app_id}; "
            "use another SAYSO_DATABASE_URL."
        )

    @reads
    def check_chain(self, session_id: str) -> None:
        """Verify a session's journal from the beginning, without reading what is in it: that needs no key for what is encrypted,
        and holds for what was erased. Raises `Corrupt`, `UnknownSession`."""
        record = self._stored(session_id)
        rows = self._db.all(_JOURNAL, (session_number(session_id),))
        check_chain(self._sealer, record, [JournalRecord(*row) for row in rows])

    # -- ownership

    def register(self, label: str) -> str:
        """Make this process known as an owner and return its owner id. It counts as alive until the process dies
        or `close()`; a `kill -9` is noticed at once (a lock the kernel holds)."""
        return self._owners.register(label)

    def alive(self, owner: str) -> bool:
        """Whether that owner's process lives."""
        return self._owners.alive(owner)

    def generation(self) -> int:
        """See `Fence.generation`. The kernel takes no lock from a process that lives: however long it slept, nobody else
        had its work."""
        return 0

    def holds(self, generation: int) -> bool:
        """See `Fence.holds`."""
        return self._db.broken is None

    def serving(self) -> list[str]:
        """Labels of living owners (`bot`, `cli`, ...), this process included."""
        return [label_of(owner) for owner in self._owners.living()]

    def try_serving(self, holder: Holder) -> Serving | None:
        """The lease to serve this database, or None while another process has it. Raises `StorageError`."""
        return FreeLease() if self.file is None else try_lease(note_of(self.file), holder)

    def served(self) -> Served:
        """The error that says who serves it."""
        return Served(self.file or "memory:", None if self.file is None else read_holder(note_of(self.file)))

    def serve_beside(self, role: str) -> None:
        """Serve in this role beside others that do the same, from now on; in none: `stopping`. Raises `Served` while a
        process serves this store alone."""

    def lease(self, name: str) -> bool:
        """Take a named lease, or keep it: False while another process has it. It ends with this process, or on `unlease`.
        Where only one process can serve a store it is always granted."""
        return True

    def unlease(self, name: str, *, tell: bool = False) -> None:
        """Give a lease back; with `tell` others are woken to take it."""

    def listen(self, wake: Callable[[str], None]) -> None:
        """Call this, on any thread, when others have committed: with `inbox`, `outbox`, `locks`, `marks` or `all`, and with
        `peers` when one came or went; with `lost` when the leases of this process are gone. Any of it may be lost."""

    def peers(self) -> dict[str, str]:
        """The owners that serve, this process included, with their roles, as they were a moment ago. Asks nobody."""
        return {"": "all"}

    def members(self, names: Sequence[str] = ()) -> list[Member]:
        """Who has this store open under a lease, with those of these leases that each holds."""
        return []

    def give_up(self, why: str) -> None:
        """Do no work any more, from whatever thread this is called: another process may do what this one did. Everything
        raises `StorageBroken` from here on."""
        self._db.broken = why

    def note_trouble(self, text: str | None) -> None:
        """Note for other processes what this one has trouble with, outside of the database; None: nothing any more."""
        self._owners.note(text)

    def troubles(self) -> list[str]:
        """What living owners have noted, each with its label."""
        return self._owners.notes()

    # -- freshness and housekeeping

    def sign(self, purpose: str, body: bytes) -> bytes:
        """A MAC under this store's key for what leaves it (an exported snapshot)."""
        return self._sealer.mac(b"sign", purpose, body)

    def enclose(self, data: bytes) -> bytes:
        """What leaves the store as a line of a file, without its end: encrypted where the store is. See
        `engine.storage.envelopes`."""
        if self.vault is None:
            return data
        from engine.storage.envelopes import enclosed

        return enclosed(self.vault.wrapping, self._sealer, data)

    def disclose(self, data: bytes) -> bytes:
        """What a file holds that was written so, by this store or by one with the same keys. Raises `SnapshotRefused`,
        `KeyMissing`."""
        if not data.startswith(BEGINS):
            return data
        from engine.storage.envelopes import disclosed
        from engine.storage.vault import Wrapping

        return disclosed(self.vault.wrapping if self.vault else Wrapping.of(()), self._sealer, data)

    def suspended(self) -> str | None:
        """Why nothing may be written, or None: the store is older than what it acknowledged, or its record of that
        was changed. Then every write raises `StoreSuspended`. Whether somebody released it meanwhile is looked up."""
        return self._db.watch.look_again()

    def stale(self) -> str | None:
        """The same, looked up anew: the files may have been changed since the store was opened."""
        return self._db.watch.findings()

    def changed(self) -> bool:
        """Whether another connection or process has committed since the last call."""
        before, self._version = self._version, self._db.data_version()
        if self._version != before and self.vault is not None:
            self.vault.forget()
        return self._version != before

    def compact(self) -> None:
        """Write everything anew without free space. Only while nobody else uses the store."""
        self._db.compact()


def vault_of(db: Database, name: str, sealer: Sealer, keys: Sequence[bytes] | None) -> Vault | None:
    """What the bodies of this database are encrypted with; None where it has no encrypted ones and no keys are given. With
    None for keys it can be verified, and not be read. Raises `KeyMissing`, and `StorePlain` for keys that come after rows."""
    with db.read():
        encrypted = db.one(_ANY_KEY) is not None
        written = db.one(_ANY_BODY)
    if not keys and not encrypted:
        return None
    if written and written[0] and not encrypted:
        raise StorePlain(name)
    from engine.storage.vault import Vault  # by those who encrypt

    vault = Vault(db, sealer, keys or ())
    if keys is not None:
        vault.check(name)
    sealer.cipher = vault
    return vault


def has_rows(db: Database) -> bool:
    """Whether anything was written to this database yet."""
    with db.read():
        row = db.one(_ANY_ROW)
    return bool(row and row[0])


def check_key(db: Database, name: str, sealer: Sealer) -> bool:
    """Note this key in a database where nothing was written yet; whether another one was noted. Raises `KeyMissing` for a key
    with which the rows were not written, before each of them is taken for corrupt."""
    mac = sealer.mac(b"meta", "key", "sayso")
    with db.read():
        row = db.one(META, ("key",))
    if row == ("sayso", mac):
        return False
    if row is not None and has_rows(db):
        raise KeyMissing(
            f"The key given for {name} is not the one that its rows were written with; "
            "check SAYSO_SECRET_KEY and the key file."
        )
    with db.write():
        db.run(PUT_META, ("key", "sayso", mac))
        db.run("DELETE FROM freshness")
    return row is not None
