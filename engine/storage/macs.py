"""MACs: what makes a changed, cut, swapped or foreign row visible before anything parses it.

Every row carries an HMAC-SHA256 over all its meaningful columns. A session's journal rows form a chain: each MAC
covers the one before it, the first one covers the session's *origin*, and the session's head covers the last one.
So a row cannot be changed, dropped, moved or added without a mismatch, and the cost of one more row does not
depend on how many there are. SQLite itself does not notice flipped payload bytes.

The message under a MAC is the domain and the fields, each with its type and length: two different rows never give
the same message.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from engine.language.errors import KeyMissing, StorageError

MINIMUM_KEY = 16
"""Bytes that a key needs at least."""


class Unreadable(StorageError):
    """A column holds a value of a type that no row of ours has."""


def message(domain: bytes, fields: Iterable[object]) -> bytes:
    """The unambiguous bytes of a row. Raises `Unreadable` for a foreign type, `StorageError` for broken text."""
    parts = [domain]
    for field in fields:
        if field is None:
            parts.append(b"|n")
        elif type(field) is str:
            text = _utf8(field)
            parts.append(b"|s%d:%b" % (len(text), text))
        elif type(field) is int:
            parts.append(b"|i%d" % field)
        elif type(field) is bytes:
            parts.append(b"|b%d:%b" % (len(field), field))
        else:
            raise Unreadable(f"a {type(field).__name__} stands in a {domain.decode()} row")
    return b"".join(parts)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise StorageError(
            f"Text that is not Unicode cannot be stored ({error}); clean it where it enters."
        ) from None


class Sealer:
    """Makes and checks MACs under one key."""

    def __init__(self, key: bytes) -> None:
        if len(key) < MINIMUM_KEY:
            raise KeyMissing(
                f"The storage key (SAYSO_SECRET_KEY, or the key file) has {len(key)} bytes and needs at least {MINIMUM_KEY}; "
                "make one with `python -c 'import secrets; print(secrets.token_hex(32))'`."
            )
        self._key = key

    def mac(self, domain: bytes, *fields: object) -> bytes:
        """The MAC of these fields."""
        return hmac.digest(self._key, message(domain, fields), "sha256")

    def genuine(self, domain: bytes, row: tuple[object, ...]) -> bool:
        """Whether a row, whose last column is its MAC, carries the one that it should."""
        *columns, mac = row
        try:
            return type(mac) is bytes and hmac.compare_digest(mac, self.mac(domain, *columns))
        except StorageError:
            return False

    def link(self, session_id: str, seq: int, previous: bytes, version: int, body: bytes) -> bytes:
        """The MAC of a journal row: it covers the row before it."""
        return self.mac(b"journal", session_id, seq, previous, version, body)

    def origin(self, session_id: str, parent_id: str | None, parent_seq: int | None, parent: bytes) -> bytes:
        """Where a session's chain begins. A fork's begins at its parent's journal MAC at `parent_seq`."""
        return self.mac(b"origin", session_id, parent_id, parent_seq, parent)
