"""Encryption at rest: data keys, and what is encrypted with them. Loaded only where a key is given, or a store needs one.

An envelope. A session has a data key of its own, rows of no session have that of their table. It is in `data_keys`,
wrapped by a key-encryption key (`SAYSO_ENCRYPTION_KEYS`): the first one given wraps, all of them unwrap. A body is
AES-256-GCM: a mark, a random nonce, the ciphertext with its tag. Its associated data are the table, whose key it is, which row
and which column, so it can be nowhere else. MACs have ended ciphertexts: they verify without any key.

Erasing a session overwrites its data key. The row stays, empty, so that no second key is ever made in its place.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import msgpack

from engine.journal.records import DataKey
from engine.language.errors import Corrupt, Erased, KeyMissing
from engine.storage.database import Database
from engine.storage.sealing import ENCRYPTED, Sealer
from engine.storage.tables import DATA_KEYS, KINDS

_NONCE = 12
_REMEMBERED = 4_096
_KEY = DATA_KEYS.where("scope = ?")
_PUT_KEY = DATA_KEYS.insert + " ON CONFLICT (scope) DO NOTHING"
_COUNT_KEYS = "SELECT key_id, count(*) FROM data_keys GROUP BY key_id"
_NEXT_ID = "SELECT min(key_id) FROM data_keys WHERE key_id > ?"
ERASED = ""
"""Stands in place of a key's id where the data key was erased."""
_encoded = msgpack.Encoder().encode


def id_of(key: bytes) -> str:
    """Return the name of a key in messages and rows, which reveals nothing about the key."""
    return hashlib.blake2b(key, digest_size=4, person=b"sayso key id").hexdigest()


class Wrapping(NamedTuple):
    """The key-encryption keys by their ids; the first one writes."""

    ciphers: dict[str, AESGCM]
    first: str

    @classmethod
    def of(cls, keys: Sequence[bytes]) -> Wrapping:
        """These keys, each of 32 bytes."""
        ciphers = {id_of(key): AESGCM(key) for key in keys}
        return cls(ciphers, next(iter(ciphers), ERASED))

    def wrapped(self, scope: str, data_key: bytes) -> DataKey:
        """A data key under the first key. Raises `KeyMissing` where there is none."""
        nonce = os.urandom(_NONCE)
        cipher = self._cipher(self.first, scope)
        return DataKey(scope, self.first, nonce + cipher.encrypt(nonce, data_key, _wrapping(scope)))

    def unwrapped(self, row: DataKey) -> bytes:
        """The data key in a row that was verified. Raises `KeyMissing`, `Erased`, `Corrupt`."""
        if row.key_id == ERASED:
            raise Erased(f"The content of {row.scope} was erased; only its existence is still known.")
        cipher = self._cipher(row.key_id, row.scope)
        try:
            return cipher.decrypt(row.wrapped[:_NONCE], row.wrapped[_NONCE:], _wrapping(row.scope))
        except InvalidTag:
            raise Corrupt(f"The data key of {row.scope} cannot be unwrapped by key {row.key_id}.") from None

    def _cipher(self, key_id: str, scope: str) -> AESGCM:
        if key_id not in self.ciphers:
            raise KeyMissing(
                f"{scope} is encrypted, and key {key_id or 'for it'} is not in SAYSO_ENCRYPTION_KEYS."
            )
        return self.ciphers[key_id]


class Vault:
    """Encrypts and decrypts the bodies of one database's rows. Inside its transactions only."""

    def __init__(self, db: Database, sealer: Sealer, keys: Sequence[bytes]) -> None:
        """With no keys nothing can be read or written, and everything be verified."""
        self._db = db
        self._sealer = sealer
        self.wrapping = Wrapping.of(keys)
        self.owned: Container[str] = ()
        """Sessions that this process owns: nobody else erases those."""
        self.alone = False
        """True if nobody else can have the store: a copy is being written."""
        self._ciphers: dict[str, AESGCM] = {}
        self._made: set[str] = set()
        """Data keys made in the transaction `_made_in`: it, or a part of it, may still be undone."""
        self._made_in = 0

    def encrypted(self, scope: str, about: tuple[object, ...], body: bytes) -> bytes:
        """A body under the data key of `scope`, which is made where there is none. Raises `Erased`, `KeyMissing`, `Corrupt`."""
        nonce = os.urandom(_NONCE)
        return ENCRYPTED + nonce + self._writing(scope).encrypt(nonce, body, _associated(scope, about))

    def decrypted(self, scope: str, about: tuple[object, ...], data: bytes) -> bytes:
        """The body in a row that was verified. Raises `Erased`, `KeyMissing`, `Corrupt`."""
        cipher = self._ciphers.get(scope) or self._found(scope)
        if cipher is None:
            raise Corrupt(f"The data key of {scope} is missing: it was removed outside this program.")
        try:
            return cipher.decrypt(data[1 : _NONCE + 1], data[_NONCE + 1 :], _associated(scope, about))
        except InvalidTag:
            raise Corrupt(f"A body of {scope} belongs elsewhere.") from None

    def forget(self) -> None:
        """Others have committed: look data keys up again."""
        self._ciphers.clear()

    def ids(self) -> Iterator[str]:
        """The ids of all keys that data keys are wrapped by."""
        found: str | None = ERASED
        while found is not None:
            with self._db.read():
                row = self._db.one(_NEXT_ID, (found,))
            found = row[0] if row else None
            if found is not None:
                yield found

    def in_use(self) -> dict[str, int]:
        """Return the number of data keys that each key wraps, by its id."""
        with self._db.read():
            return {key_id: count for key_id, count in self._db.all(_COUNT_KEYS) if key_id != ERASED}

    def check(self, name: str) -> None:
        """Raise `KeyMissing` where data keys are wrapped by a key that was not given."""
        lacking = [key_id for key_id in self.ids() if key_id not in self.wrapping.ciphers]
        if lacking:
            here = ", ".join(self.wrapping.ciphers) or "none"
            raise KeyMissing(
                f"{name} is encrypted, and SAYSO_ENCRYPTION_KEYS lacks key {', '.join(lacking)} (it has {here}). "
                "Add that key; without it, nobody can read the data that it encrypts."
            )

    def _writing(self, scope: str) -> AESGCM:
        """The data key for a new body. One that somebody may have erased meanwhile is looked up each time."""
        known = self._ciphers.get(scope)
        if known is not None and (self.alone or scope in self.owned or scope in KINDS):
            return known
        found = self._found(scope)
        if found is None:
            if not self.alone:
                self._db.hold(f"data key {scope}")
            found = self._found(scope) or self._new(scope)
        return found

    def _found(self, scope: str) -> AESGCM | None:
        try:
            row = self._db.one(_KEY, (scope,))
        except UnicodeDecodeError:
            raise Corrupt(f"The data key of {scope} is unreadable.") from None
        if row is None:
            return None
        record = DATA_KEYS.verified(self._sealer, row)
        if record is None:
            raise Corrupt(f"The data key of {scope} was changed outside this program.")
        self._ciphers.pop(scope, None)
        cipher = AESGCM(self.wrapping.unwrapped(record))
        if self._made_in != self._db.transactions:
            self._made.clear()
        if scope not in self._made:
            if len(self._ciphers) >= _REMEMBERED:
                self._ciphers.clear()
            self._ciphers[scope] = cipher
        return cipher

    def _new(self, scope: str) -> AESGCM:
        key = AESGCM.generate_key(256)
        self._db.run(_PUT_KEY, DATA_KEYS.sealed(self._sealer, self.wrapping.wrapped(scope, key)))
        if self.alone:
            self._ciphers[scope] = AESGCM(key)
        if self._made_in != self._db.transactions:
            self._made.clear()
        self._made_in = self._db.transactions
        self._made.add(scope)
        return AESGCM(key)


def _associated(scope: str, about: tuple[object, ...]) -> bytes:
    """Return the context that a body is bound to."""
    return _encoded((b"body", scope, *about))


def _wrapping(scope: str) -> bytes:
    """Return the context that a wrapped data key is bound to."""
    return _encoded((b"data key", scope))
