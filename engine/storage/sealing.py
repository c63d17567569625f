"""The heads and journals of sessions as they are stored: how a commit moves them, how they are verified, and
the MACs that make a changed, cut, swapped or foreign row visible before anything parses it. Pure.

Every row carries a keyed BLAKE2b over all its meaningful columns. A session's journal rows form a chain: each MAC
covers the one before it, the first one covers the session's *origin*, and the session's head covers the last one.
So a row cannot be changed, dropped, moved or added without a mismatch, and the cost of one more row does not
depend on how many there are. SQLite itself does not notice flipped payload bytes.

The message under a MAC is the domain and the fields, each with its type and length (as MessagePack writes them): two
different rows never give the same message.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Protocol

from msgspec import msgpack
from msgspec.structs import astuple

from engine.journal.events import SCHEMA_VERSION
from engine.journal.phases import ENDED
from engine.journal.records import Commit, Head, HeadRow, NewSession, Record
from engine.language.errors import Corrupt, KeyMissing, RowRefused, SchemaTooNew, StorageError
from engine.storage import errors
from engine.storage.packing import unpacked_apart


class StoredHead(HeadRow, frozen=True):
    """A session's head as stored. `origin` is where its chain begins, `chain` the MAC of its last journal row."""

    origin: bytes
    chain: bytes
    mac: bytes = b""

    def head(self, quarantined: str | None) -> Head:
        """Return the public head; a quarantined session has no owner."""
        shown = self.but(owner=None) if quarantined else self
        *columns, _origin, _chain, _mac = astuple(shown)
        return Head(*(*columns, quarantined))


class Cipher(Protocol):
    """Encryption of bodies: see `engine.storage.vault`."""

    def encrypted(self, scope: str, about: tuple[object, ...], body: bytes) -> bytes:
        """A body as a row holds it, under the data key of `scope`; it belongs to what is said `about` it alone."""

    def decrypted(self, scope: str, about: tuple[object, ...], data: bytes) -> bytes:
        """The body in a row that was verified."""


class JournalRecord(Record, frozen=True):
    """The events of one commit as stored, packed; `seq` is that of the first. Its MAC covers the one before it (see
    `Sealer.link`)."""

    seq: int
    version: int
    body: bytes
    mac: bytes


def sealed(sealer: Sealer, head: StoredHead) -> StoredHead:
    """The head with its MAC."""
    return head.but(mac=sealer.seal(b"session", *astuple(head)[:-1]))


def genuine(sealer: Sealer, head: StoredHead) -> bool:
    """True if the head carries its MAC."""
    return sealer.genuine(b"session", astuple(head))


def check_new(commit: Commit, new: NewSession) -> None:
    """Refuse a creation that could not be read back. Raises `StorageError`."""
    if (commit.epoch, commit.seq) != (1, 0):
        raise errors.NotABeginning(commit=commit)
    check_texts("head", (commit.session_id, new.flow_name, new.thread_key))
    if digest_of(new.flow_body) != new.flow_digest:
        raise errors.WrongDigest(flow=f"flow {new.flow_name!r}")
    if commit.pin is not None:
        raise errors.TwoFlows(session_id=commit.session_id)
    if new.parent_seq is not None and new.parent_session_id is None:
        raise errors.NoParent(session_id=commit.session_id)


def check_pin(commit: Commit) -> None:
    """Refuse a flow that could not be read back. Raises `StorageError`."""
    if commit.pin is not None and digest_of(commit.pin.flow_body) != commit.pin.flow_digest:
        raise errors.WrongDigest(flow=f"the flow for {commit.session_id}")


def digest_of(body: bytes) -> str:
    """A pinned flow's digest."""
    return hashlib.sha256(body).hexdigest()


def created(commit: Commit, new: NewSession, origin: bytes) -> StoredHead:
    """The head before the first event."""
    return StoredHead(
        session_id=commit.session_id,
        flow_name=new.flow_name,
        flow_digest=new.flow_digest,
        parent_session_id=new.parent_session_id,
        thread_key=new.thread_key,
        status=commit.status,
        phase=commit.phase,
        epoch=1,
        seq=0,
        owner=commit.owner,
        created_at=commit.now,
        updated_at=commit.now,
        ended_at=None,
        origin=origin,
        chain=origin,
    )


def linked(sealer: Sealer, commit: Commit, body: bytes, chain: bytes) -> JournalRecord:
    """The journal row of a commit whose packed events are `body`, chained on to `chain`."""
    if sealer.cipher is not None:
        body = sealer.cipher.encrypted(commit.session_id, (JOURNAL, commit.seq + 1), body)
    mac = sealer.link(commit.session_id, commit.seq + 1, chain, SCHEMA_VERSION, body)
    return JournalRecord(commit.seq + 1, SCHEMA_VERSION, body, mac)


def advanced(sealer: Sealer, head: StoredHead, commit: Commit, chain: bytes) -> StoredHead:
    """The head after a commit whose last journal MAC is `chain`, sealed."""
    ended = commit.status in ENDED
    after = head.but(
        status=commit.status,
        phase=commit.phase,
        epoch=commit.epoch,
        seq=head.seq + len(commit.events),
        owner=None if commit.release else commit.owner or head.owner,
        flow_digest=head.flow_digest if commit.pin is None else commit.pin.flow_digest,
        updated_at=commit.now,
        ended_at=(head.ended_at or commit.now) if ended else None,
        chain=chain,
    )
    return sealed(sealer, after)


def row_events(
    sealer: Sealer, head: StoredHead, record: JournalRecord, *, seq: int, chain: bytes
) -> list[bytes]:
    """The events of the row that follows on `seq`, where the chain was at `chain`; verified before it is unpacked. Raises
    `Corrupt`."""
    if record.seq != seq + 1:
        raise Corrupt(
            f"The journal of {head.session_id} has no row {seq + 1} where one should be (found {record.seq})."
        )
    _check_row(sealer, head, record, chain)
    return unpacked_apart(sealer.opened(head.session_id, (JOURNAL, record.seq), record.body))


def verified_events(
    sealer: Sealer, head: StoredHead, records: list[JournalRecord], *, seq: int, chain: bytes
) -> tuple[bytes, ...]:
    """The events after `seq`, where the chain was at `chain`, up to the head: of these rows, each verified before it
    is unpacked. Raises `Corrupt`, and `SchemaTooNew` where all of them verify and some are a newer release's."""
    found: list[bytes] = []
    before = seq
    for record in records:
        found += row_events(sealer, head, record, seq=seq, chain=chain)
        chain = record.mac
        seq = before + len(found)
    if seq != head.seq or chain != head.chain:
        raise Corrupt(
            f"The journal of {head.session_id} ends at {seq} and its head says {head.seq}: "
            "one of them was cut or rolled back."
        )
    newest = max((record.version for record in records), default=0)
    if newest > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"Session {head.session_id} has events of schema {newest}, and this release reads up to {SCHEMA_VERSION}."
        )
    return tuple(found)


def _check_row(sealer: Sealer, head: StoredHead, record: JournalRecord, chain: bytes) -> None:
    """Raise `Corrupt` for a row that does not carry the MAC that it should."""
    if type(record.version) is not int or type(record.body) is not bytes:
        raise Corrupt(f"Row {record.seq} in the journal of {head.session_id} is unreadable.")
    row = (head.session_id, record.seq, chain, record.version, record.body, record.mac)
    if not sealer.genuine(JOURNAL, row):
        raise Corrupt(
            f"Row {record.seq} in the journal of {head.session_id} was changed outside this program."
        )


def check_chain(sealer: Sealer, head: StoredHead, records: Iterable[JournalRecord]) -> None:
    """Raise `Corrupt` unless these rows are the whole journal, as it was written. That needs no data key."""
    chain = head.origin
    for record in records:
        _check_row(sealer, head, record, chain)
        chain = record.mac
    if chain != head.chain:
        raise Corrupt(f"The journal of {head.session_id} does not end where its head says that it does.")


# --- MACs --------------------------------------------------------------------------------------------------


MINIMUM_KEY = 16
"""Bytes that a key needs at least."""
ENCRYPTED = b"\x02"
"""First byte of an encrypted body; JSON and packed values begin otherwise."""
BEGINS = b'{"encrypted":'
"""Beginning of an encrypted file."""
JOURNAL = b"journal"
"""The domain of journal rows, whose MAC covers the one of the row before."""
_SEAL_BYTES = 24
"""Length of the MACs of rows."""
TEXT_BYTES = 1_200
"""Most bytes of a text in a column. Two of them fit into an index on a server."""
_SURELY_FITS = TEXT_BYTES // 4
_encoded = msgpack.Encoder().encode


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
        raise _not_unicode(error) from None


def _not_unicode(error: UnicodeEncodeError) -> RowRefused:
    return RowRefused(f"Text that is not Unicode cannot be stored ({error}); clean it where it enters.")


def check_texts(what: str, values: Iterable[object]) -> None:
    """Refuse text that not every store can hold in a column. Raises `RowRefused`."""
    for value in values:
        if type(value) is not str or (len(value) <= _SURELY_FITS and "\0" not in value):
            continue
        if "\0" in value:
            raise RowRefused(
                f"Text with a NUL cannot be stored ({what}: {value[:80]!r}); clean it where it enters."
            )
        if (size := len(_utf8(value))) > TEXT_BYTES:
            raise RowRefused(
                f"Text of {size:,} bytes is too long ({what}: {value[:80]!r}…): {TEXT_BYTES:,} are stored."
            )


class Sealer:
    """Makes and checks MACs under one key."""

    def __init__(self, key: bytes) -> None:
        if len(key) < MINIMUM_KEY:
            raise KeyMissing(
                f"The storage key (SAYSO_SECRET_KEY, or the key file) has {len(key)} bytes and needs at least {MINIMUM_KEY}; "
                "make one with `python -c 'import secrets; print(secrets.token_hex(32))'`."
            )
        self.cipher: Cipher | None = None
        """Encryption of bodies; None if they are not encrypted."""
        self._key = key
        self._rows = hashlib.blake2b(key=self.mac(b"rows"), digest_size=_SEAL_BYTES)

    def mac(self, domain: bytes, *fields: object) -> bytes:
        """The MAC of what is not a row: keys that are made of this one, what leaves the store."""
        return hmac.digest(self._key, message(domain, fields), "sha256")

    def seal(self, domain: bytes, *fields: object) -> bytes:
        """The MAC of a row. Raises `StorageError` for broken text."""
        begun = self._rows.copy()
        try:
            begun.update(_encoded((domain, *fields)))
        except UnicodeEncodeError as error:
            raise _not_unicode(error) from None
        return begun.digest()

    def genuine(self, domain: bytes, row: tuple[object, ...]) -> bool:
        """True if a row, whose last column is its MAC, carries the right one."""
        *columns, mac = row
        if type(mac) is not bytes:
            return False
        try:
            return hmac.compare_digest(mac, self.seal(domain, *columns))
        except StorageError:
            return False

    def opened(self, scope: str, about: tuple[object, ...], body: bytes) -> bytes:
        """A body of a row that was verified, decrypted where it is encrypted. Raises `KeyMissing`, `Erased`, `Corrupt`."""
        if body[:1] != ENCRYPTED:
            return body
        if self.cipher is None:
            raise KeyMissing(
                f"{scope} is now encrypted: set SAYSO_ENCRYPTION_KEYS for this process and restart it."
            )
        return self.cipher.decrypted(scope, about, body)

    def link(self, session_id: str, seq: int, previous: bytes, version: int, body: bytes) -> bytes:
        """The MAC of a journal row: it covers the row before it."""
        return self.seal(JOURNAL, session_id, seq, previous, version, body)

    def origin(self, session_id: str, parent_id: str | None, parent_seq: int | None, parent: bytes) -> bytes:
        """Return the beginning of a session's chain. A fork's begins at its parent's journal MAC at `parent_seq`."""
        return self.seal(b"origin", session_id, parent_id, parent_seq, parent)
