"""Attests what is in the journals: adds leaves to the audit log of a store, and signs a checkpoint over them.

A checkpoint is a signed note (C2SP tlog-checkpoint): the origin, the size of the tree, its root, and an Ed25519 signature. A line
may be added before the signature: `key …` where the note hands over to another key, `export …` where it seals an export.

The installation's private key is derived from the key that signs rows (`SAYSO_SECRET_KEY`, or the key file) and the number of the leaf
that names it. A key of its own would have to lie beside that one, on each machine and in each backup, so a thief of one would have
both; and where it was lost, so would the log be. Another leaf is another key, which the one before signs: those who trust the first
one can follow. After a theft of `SAYSO_SECRET_KEY`, `sayso store copy` to another one is the remedy for rows and log alike.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.journal.audit import audit
from engine.journal.events import decode_event
from engine.journal.evidence import HASH_BYTES, chained, grown, root, statement
from engine.journal.records import LeafRow
from engine.language.codec import decode, encode
from engine.language.errors import Corrupt, Erased, KeyMissing, MalformedJournal, UnknownSession
from engine.storage.store import Store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_log = logging.getLogger("sayso.storage")
AT_ONCE = 50
"""Sessions that a command attests in one transaction."""
_KEYS = ""
"""Stands in place of a session's id in leaves that name a key."""


class Signer(NamedTuple):
    """Signs with one Ed25519 key under the name of the log. `public` is the key as verifiers of signed notes take it: the name, the
    key's id, and its type and bytes."""

    name: str
    key: Ed25519PrivateKey
    public: str

    @classmethod
    def of(cls, store: Store, number: int, name: str | None = None) -> Signer:
        """The key of the leaf with this number; the first key gives the log its name."""
        return cls.from_seed(store.sign("checkpoint key", b"%d" % number), name)

    @classmethod
    def from_seed(cls, seed: bytes, name: str | None) -> Signer:
        """The key of 32 secret bytes."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.from_private_bytes(seed)
        raw = key.public_key().public_bytes_raw()
        name = name or f"sayso/{sha256(raw).hexdigest()[:16]}"
        key_id = sha256(f"{name}\n\1".encode() + raw).hexdigest()[:8]
        return cls(name, key, f"{name}+{key_id}+{b64encode(bytes([1]) + raw).decode()}")

    def note(self, size: int, peaks: bytes, added: str = "") -> str:
        """A signed checkpoint of the tree, with an added line."""
        text = statement(self.name, size, root(peaks)) + (added and f"{added}\n")
        key_id = bytes.fromhex(self.public.split("+")[1])
        return f"{text}\n— {self.name} {b64encode(key_id + self.key.sign(text.encode())).decode()}\n"


def signer(store: Store) -> Signer | None:
    """Return the key that signs now; None before the first checkpoint. Raises `KeyMissing`, `Corrupt`."""
    row = store.evidence.newest(_KEYS)
    if row is None:
        return None
    told = _told(row)
    found = Signer.of(store, told["leaf"] + 1, told["key"].partition("+")[0])
    if found.public != told["key"]:
        raise KeyMissing(
            "The key of the audit log was derived from another SAYSO_SECRET_KEY: copy the store again with "
            "`sayso store copy`."
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
        row = _key_leaf(store, size, now, old or new, new)
        if store.evidence.append(size, _signed(store, new, size, [row])):
            return new.public


def attest(store: Store, now: str, *, ended_since: str | None = None) -> str | None:
    """Attest all sessions that continued, or those that ended since; the last new checkpoint, or None where there is nothing new.
    Sessions that cannot be read are left for later. Raises `StorageError`."""
    waiting, note = store.evidence.ahead(ended_since), None
    for first in range(0, len(waiting), AT_ONCE):
        note = attest_some(store, waiting[first : first + AT_ONCE], now) or note
    return note


def attest_some(store: Store, session_ids: Sequence[str], now: str) -> str | None:
    """Attest these sessions as `attest` does, in one transaction. Of each the whole journal is read."""
    while True:
        signing, size, rows = signer(store), store.evidence.size(), list[LeafRow]()
        if signing is None:
            signing = Signer.of(store, 1)
            rows.append(_key_leaf(store, 0, now, signing, signing))
        for session_id in session_ids:
            try:
                rows += _leaf_of(store, session_id, size + len(rows), now)
            except (Corrupt, Erased, KeyMissing, MalformedJournal, UnknownSession) as error:
                _log.debug("%s is not attested: %s", session_id, error)
        if not rows:
            return None
        if store.evidence.append(size, signed := _signed(store, signing, size, rows)):
            return signed[-1].note


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


def _key_leaf(store: Store, leaf: int, now: str, old: Signer, new: Signer) -> LeafRow:
    signed = old.note(leaf, _peaks(store, leaf), f"key {new.public}")
    told = {"leaf": leaf, "time": now, "key": new.public, "signed": signed}
    return LeafRow(_KEYS, 0, encode(told).decode(), None, None)


def _peaks(store: Store, size: int) -> bytes:
    return (store.evidence.leaf(size).peaks or b"") if size else b""


def _signed(store: Store, signing: Signer, size: int, rows: list[LeafRow]) -> list[LeafRow]:
    """The rows, the last one with the tree after it and its checkpoint."""
    peaks = _peaks(store, size)
    for number, row in enumerate(rows, size):
        peaks = grown(peaks, number, row.line)
    return [*rows[:-1], rows[-1].but(note=signing.note(size + len(rows), peaks), peaks=peaks)]


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
        signing, digest, size = signer(self._store), sha256(), self._size
        before = _peaks(self._store, size)
        peaks = [before[at : at + HASH_BYTES].hex() for at in range(0, len(before), HASH_BYTES)]
        first = encode({"export": 1, "before": self.note, "peaks": peaks})
        for line in chain([first], self._leaves()):
            digest.update(line + b"\n")
            yield line
        if signing is not None:
            size = size_of(self.note) if self.note else 0
            sealed = signing.note(size, _peaks(self._store, size), f"export {digest.hexdigest()}")
            yield encode({"checkpoint": sealed})

    def _leaves(self) -> Iterator[bytes]:
        for row in self._store.evidence.after(self._size):
            yield row.line.encode()
            if row.session_id:
                yield from self._records(row)
            self.note = row.note or self.note

    def _records(self, row: LeafRow) -> Iterator[bytes]:
        try:
            records = attested(self._store, row, content=self._content)
        except (Erased, UnknownSession) as error:
            self.erased.add(f"{row.session_id} is left out: {error}")
            yield encode({"absent": "erased or deleted"})
        except (Corrupt, KeyMissing, MalformedJournal) as error:
            self.damaged.append(f"{row.session_id} is left out: {error}")
            yield encode({"absent": "damaged"})
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
            f"Events {told['from'] + 1} to {row.seq} of {row.session_id} differ from those attested on "
            f"{told['time']}."
        )
    return [line for line, _ in found]


def size_of(note: str) -> int:
    """Return the size that a checkpoint tells. Raises `ValueError`."""
    origin, size, digest, empty, *_ = note.split("\n")
    if not origin.startswith("sayso/") or empty or len(b64decode(digest, validate=True)) != HASH_BYTES:
        raise ValueError("no checkpoint")
    return int(size)
