"""A store on a database: which workspace it belongs to, with which key its rows are signed, who owns what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from engine.language.errors import Corrupt, KeyMissing, WrongWorkspace
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


class DatabaseStore(SessionDeletion):
    """`Store` on a database. Threads may share it; their calls run one after the other."""

    file: Path | None = None
    dated = True
    shared = False

    def __init__(self, db: Database, sealer: Sealer, owners: AnyOwners, vault: Vault | None = None) -> None:
        """Made by those that open databases."""
        super().__init__(db, sealer, owners.alive)
        self.vault = vault
        if vault is not None:
            vault.owned = self._known
        self._owners = owners
        self._version = db.data_version()

    def close(self) -> None:
        """See `Store.close`."""
        self._owners.close()
        self._db.watch.close()
        self._db.close()

    def bind(self, team_id: str, app_id: str) -> None:
        """See `Store.bind`."""
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
        """See `Store.check_chain`."""
        record = self._stored(session_id)
        rows = self._db.all(_JOURNAL, (session_number(session_id),))
        check_chain(self._sealer, record, [JournalRecord(*row) for row in rows])

    # -- ownership

    def register(self, label: str) -> str:
        """See `Store.register`."""
        return self._owners.register(label)

    def alive(self, owner: str) -> bool:
        """See `Store.alive`."""
        return self._owners.alive(owner)

    def generation(self) -> int:
        """See `Fence.generation`. The kernel takes no lock from a process that lives: however long it slept, nobody else
        had its work."""
        return 0

    def holds(self, generation: int) -> bool:
        """See `Fence.holds`."""
        return self._db.broken is None

    def serving(self) -> list[str]:
        """See `Store.serving`."""
        return [label_of(owner) for owner in self._owners.living()]

    def try_serving(self, holder: Holder) -> Serving | None:
        """See `Store.try_serving`."""
        return FreeLease() if self.file is None else try_lease(note_of(self.file), holder)

    def served(self) -> Served:
        """See `Store.served`."""
        return Served(self.file or "memory:", None if self.file is None else read_holder(note_of(self.file)))

    def serve_beside(self, role: str) -> None:
        """See `Store.serve_beside`."""

    def lease(self, name: str) -> bool:
        """See `Store.lease`."""
        return True

    def unlease(self, name: str, *, tell: bool = False) -> None:
        """See `Store.unlease`."""

    def listen(self, wake: Callable[[str], None]) -> None:
        """See `Store.listen`."""

    def peers(self) -> dict[str, str]:
        """See `Store.peers`."""
        return {"": "all"}

    def members(self, names: Sequence[str] = ()) -> list[Member]:
        """See `Store.members`."""
        return []

    def give_up(self, why: str) -> None:
        """See `Store.give_up`."""
        self._db.broken = why

    def note_trouble(self, text: str | None) -> None:
        """See `Store.note_trouble`."""
        self._owners.note(text)

    def troubles(self) -> list[str]:
        """See `Store.troubles`."""
        return self._owners.notes()

    # -- freshness and housekeeping

    def sign(self, purpose: str, body: bytes) -> bytes:
        """See `Store.sign`."""
        return self._sealer.mac(b"sign", purpose, body)

    def enclose(self, data: bytes) -> bytes:
        """See `Store.enclose`."""
        if self.vault is None:
            return data
        from engine.storage.envelopes import enclosed

        return enclosed(self.vault.wrapping, self._sealer, data)

    def disclose(self, data: bytes) -> bytes:
        """See `Store.disclose`."""
        if not data.startswith(BEGINS):
            return data
        from engine.storage.envelopes import disclosed
        from engine.storage.vault import Wrapping

        return disclosed(self.vault.wrapping if self.vault else Wrapping.of(()), self._sealer, data)

    def suspended(self) -> str | None:
        """See `Store.suspended`."""
        return self._db.watch.look_again()

    def stale(self) -> str | None:
        """See `Store.stale`."""
        return self._db.watch.findings()

    def changed(self) -> bool:
        """See `Store.changed`."""
        before, self._version = self._version, self._db.data_version()
        if self._version != before and self.vault is not None:
            self.vault.forget()
        return self._version != before

    def compact(self) -> None:
        """See `Store.compact`."""
        self._db.compact()


def vault_of(db: Database, name: str, sealer: Sealer, keys: Sequence[bytes] | None) -> Vault | None:
    """What the bodies of this database are encrypted with; None where it has no encrypted ones and no keys are given. With
    None for keys it can be verified, and not be read. Raises `KeyMissing`."""
    with db.read():
        encrypted = db.one(_ANY_KEY) is not None
    if not keys and not encrypted:
        return None
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
