"""Attests what stands in the journals: adds leaves to the audit log of a store, and signs a checkpoint over them.

A checkpoint is a signed note (C2SP tlog-checkpoint): the origin, the size of the tree, its root, and an Ed25519 signature.
The private key is made of the key that signs rows (`SAYSO_SECRET_KEY`, or the key file) and the number of the leaf that names
it. So it needs no place of its own, is in no backup of the database, and another leaf is another key: that leaf is
signed with the key before, so that who trusts the first one can follow.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.journal.audit import audit
from engine.journal.events import decode_event
from engine.journal.evidence import chained, grown, root, statement
from engine.journal.records import LeafRow
from engine.language.codec import decode, encode
from engine.language.errors import Corrupt, Erased, KeyMissing, MalformedJournal, UnknownSession
from engine.storage.store import Store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_log = logging.getLogger("sayso.storage")
_AT_ONCE = 200
_KEYS = ""
"""Stands in place of a session's id in leaves that name a key."""


class Signer(NamedTuple):
    """Signs with one Ed25519 key under the name of the log."""

    name: str
    key: Ed25519PrivateKey

    @classmethod
    def of(cls, store: Store, number: int, name: str | None = None) -> Signer:
        """The key of the leaf with this number; the first key gives the log its name."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.from_private_bytes(store.sign("checkpoint key", b"%d" % number))
        return cls(name or f"sayso/{sha256(key.public_key().public_bytes_raw()).hexdigest()[:16]}", key)

    @property
    def public(self) -> str:
        """The public key as a verifier of signed notes takes it: name, key id, type and key."""
        return f"{self.name}+{self._id().hex()}+{b64encode(self._typed()).decode()}"

    def note(self, text: str) -> str:
        """A signed note of this text."""
        signed = b64encode(self._id() + self.key.sign(text.encode())).decode()
        return f"{text}\n— {self.name} {signed}\n"

    def _typed(self) -> bytes:
        return b"\1" + self.key.public_key().public_bytes_raw()

    def _id(self) -> bytes:
        return sha256(self.name.encode() + b"\n" + self._typed()).digest()[:4]


def signer(store: Store) -> Signer | None:
    """Return the key that signs now; None before the first checkpoint. Raises `KeyMissing`, `Corrupt`."""
    row = store.evidence.newest(_KEYS)
    if row is None:
        return None
    told: Any = decode(row.line.encode())
    found = Signer.of(store, told["leaf"] + 1, told["key"].partition("+")[0])
    if found.public != told["key"]:
        raise KeyMissing(
            "The key of the audit log was made of another SAYSO_SECRET_KEY: copy the store again with `sayso store copy`."
        )
    return found


def keys(store: Store) -> list[str]:
    """Return all public keys of the log, the first one first. Raises `Corrupt`."""
    return [_told(row)["key"] for row in store.evidence.of(_KEYS)]


def rotate(store: Store, now: str, signing: Store | None = None) -> str:
    """Make another key the one that signs, and return it. `signing` is the store that the log was copied from."""
    while True:
        old, size = signer(signing or store), store.evidence.size()
        new = Signer.of(store, size + 1, old.name if old else None)
        row = _key_leaf(size, now, new)
        if store.evidence.append(size, _signed(store, old or new, size, [row])):
            return new.public


def attest(store: Store, now: str, *, ended_since: str | None = None) -> str | None:
    """Attest all sessions that went on, or those that ended since; the new checkpoint, or None where there is nothing new.
    Sessions that cannot be read are left for later. Raises `StorageError`."""
    note = None
    waiting = store.evidence.ahead(ended_since)
    while waiting:
        signing, size = signer(store), store.evidence.size()
        rows: list[LeafRow] = []
        if signing is None:
            signing = Signer.of(store, 1)
            rows.append(_key_leaf(0, now, signing))
        for session_id in waiting[:_AT_ONCE]:
            try:
                rows += _leaf_of(store, session_id, size + len(rows), now)
            except (Corrupt, Erased, KeyMissing, MalformedJournal, UnknownSession) as error:
                _log.debug("%s is not attested: %s", session_id, error)
        if rows and not store.evidence.append(size, signed := _signed(store, signing, size, rows)):
            continue
        note = signed[-1].note if rows else note
        waiting = waiting[_AT_ONCE:]
    return note


def _leaf_of(store: Store, session_id: str, leaf: int, now: str) -> list[LeafRow]:
    before = store.evidence.newest(session_id)
    events = [decode_event(row) for row in store.sessions.journal(session_id)]
    done, head = (0, "") if before is None else (before.seq, str(_told(before)["head"]))
    if len(events) <= done:
        return []
    told: dict[str, Any] = {"leaf": leaf, "time": now, "sessionId": session_id, "from": done}
    told |= {"seq": len(events), "after": head}
    for _, after in chained(audit(events, after=done), head):
        head = after
    return [LeafRow(session_id, len(events), encode({**told, "head": head}).decode(), None, None)]


def _key_leaf(leaf: int, now: str, signing: Signer) -> LeafRow:
    told = {"leaf": leaf, "time": now, "key": signing.public}
    return LeafRow(_KEYS, 0, encode(told).decode(), None, None)


def _signed(store: Store, signing: Signer, size: int, rows: list[LeafRow]) -> list[LeafRow]:
    """The rows, the last one with the tree after it and its checkpoint."""
    peaks = store.evidence.leaf(size).peaks or b"" if size else b""
    for number, row in enumerate(rows, size):
        peaks = grown(peaks, number, row.line)
    note = signing.note(statement(signing.name, size + len(rows), root(peaks)))
    return [*rows[:-1], rows[-1].but(note=note, peaks=peaks)]


def _told(row: LeafRow) -> Any:
    return decode(row.line.encode())


# --- exports ---------------------------------------------------------------------------------------------------


class Export:
    """An export of the log after its first `size` leaves: lines, and what had to be left out."""

    def __init__(self, store: Store, size: int, *, content: bool) -> None:
        self._store, self._size, self._content = store, size, content
        self.count, self.damaged = 0, list[str]()
        self.sessions, self.erased = set[str](), set[str]()
        self.note = store.evidence.leaf(size).note if size else None
        """The checkpoint with which the export ends."""
        for session_id in store.evidence.ahead():
            try:
                list(map(decode_event, store.sessions.journal(session_id)))
            except (Erased, UnknownSession):
                pass
            except (Corrupt, KeyMissing, MalformedJournal) as error:
                self.damaged.append(f"{session_id} is left out: {error}")

    def lines(self) -> Iterator[bytes]:
        """Yield the lines without their ends. Raises `StorageError`."""
        digest, number = sha256(), 0
        for number, line in enumerate(self._lines(), 1):  # noqa: B007
            digest.update(line + b"\n")
            yield line
        signing = signer(self._store)
        if signing is not None:
            yield encode({"seal": signing.note(statement(f"{signing.name}/export", number, digest.digest()))})

    def _lines(self) -> Iterator[bytes]:
        peaks = self._store.evidence.leaf(self._size).peaks if self._size else None
        yield encode({"export": 1, "before": self.note, "peaks": peaks.hex() if peaks else ""})
        for row in self._store.evidence.after(self._size):
            yield row.line.encode()
            if row.session_id:
                yield from self._records(row)
            if row.note is not None:
                self.note = row.note
                yield encode({"checkpoint": row.note})

    def _records(self, row: LeafRow) -> Iterator[bytes]:
        told = _told(row)
        try:
            records = attested(self._store, row, content=self._content)
        except (Erased, UnknownSession) as error:
            self.erased.add(f"{row.session_id} is left out: {error}")
            yield encode({"absent": told["leaf"], "why": "erased or deleted"})
        except (Corrupt, KeyMissing, MalformedJournal) as error:
            self.damaged.append(f"{row.session_id} is left out: {error}")
            yield encode({"absent": told["leaf"], "why": "damaged"})
        else:
            self.count += len(records)
            self.sessions.add(row.session_id)
            yield from records


def attested(store: Store, row: LeafRow, *, content: bool = False) -> list[bytes]:
    """Return the lines of the records that a leaf attests. Raises `Corrupt` where the journal gives others, and what
    reading it raises."""
    told = _told(row)
    events = [decode_event(one) for one in store.sessions.journal(row.session_id)][: row.seq]
    records = (record for record in audit(events, after=told["from"], content=content))
    found = list(chained(records, told["after"], content=content))
    if len(events) < row.seq or (found[-1][1] if found else told["after"]) != told["head"]:
        raise Corrupt(
            f"Events {told['from'] + 1} to {row.seq} of {row.session_id} are not those that were attested on {told['time']}."
        )
    return [line for line, _ in found]


def check_attested(store: Store, session_id: str) -> None:
    """Raise `Corrupt` unless a session's journal gives what every leaf of it attests."""
    for row in store.evidence.of(session_id):
        attested(store, row)


def size_of(note: str) -> int:
    """Return the size that a checkpoint tells. Raises `ValueError`."""
    origin, size, digest, empty, *_ = note.split("\n")
    if not origin.startswith("sayso/") or empty or len(b64decode(digest, validate=True)) != 32:
        raise ValueError("no checkpoint")
    return int(size)
