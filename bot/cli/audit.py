"""`audit export`: who was asked, who decided what and when, what ran, as JSON lines; and the seals by which
`verify` finds out whether a file is as it was written, without a database and without a running bot.

A file that is written has its seal beside it, `FILE.seal`: the SHA-256 of its bytes and the seal of the export before, with
a MAC under the store's key. With `--cursor` an export goes on where the last one ended. The cursor is written last, so a
process that is killed in between exports the same records once more, under the same ids. It is signed as well: whoever
can write to it cannot hide records from the next export.
"""

from __future__ import annotations

import hmac
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, BinaryIO

from bot.terminal.console import Exit, Place, UsageError, clean, opened, plural, writable
from engine.journal.audit import AuditRecord, audit
from engine.journal.events import decode_event
from engine.journal.records import Head
from engine.language.codec import canonical, decode_signed, encode
from engine.language.errors import Corrupt, Erased, MalformedJournal, NotJson
from engine.storage.private_files import durable_file
from engine.storage.sealing import Sealer
from engine.storage.store import Store

_PURPOSE = "audit"
_CURSOR = "audit cursor"


def export_audit(place: Place, output: Path | None, cursor: Path | None, *, content: bool) -> int:
    """Write the records since the cursor. Raises `UsageError` for files that cannot be used, `StorageError`."""
    settings = place.settings()
    if (
        cursor is not None
        and output is not None
        and (cursor.resolve() in (output.resolve(), seal_file(output).resolve()))
    ):
        raise UsageError(f"{cursor} is where the export or its seal goes; name another file for the cursor.")
    read = None if cursor is None or not cursor.exists() else _read_cursor(cursor)
    with opened(settings, "nothing to export") as store:
        before = _own_cursor(store, cursor, read)
        trail = _Trail(store, before["after"], content=content)
        lines = (encode(record.to_json()) + b"\n" for record in trail.records())
        if output is None:
            with writable("The export"):
                digest = _to_stream(sys.stdout.buffer, lines)
            seal = _sign(store, digest, before["seal"])
        else:
            seal = _write_sealed(store, output, lines, before["seal"])
        if cursor is not None:
            seen = {"version": 1, "after": trail.after, "seal": seal["mac"]}
            with writable(cursor), durable_file(cursor) as file:
                file.write(encode({**seen, "mac": _mac(store, _CURSOR, seen)}))
    for problem in trail.damaged:
        print(f"sayso: {clean(problem)}", file=sys.stderr)
    if output is not None:
        told = f"{plural(trail.count, 'record')} of {plural(trail.sessions, 'session')}"
        print(f"{told} written to {clean(str(output))}; its seal is {clean(str(seal_file(output)))}.")
    return Exit.STORE if trail.damaged else Exit.OK


class _Trail:
    """One reading of all journals: what it gave, how far it came, and what could not be read."""

    def __init__(self, store: Store, after: dict[str, int], *, content: bool) -> None:
        self._store, self._before, self._content = store, after, content
        self.after: dict[str, int] = {}
        self.count = self.sessions = 0
        self.damaged: list[str] = []

    def records(self) -> Iterator[AuditRecord]:
        """The records, session by session, oldest session first."""
        heads = sorted(
            self._store.sessions.heads(limit=None), key=lambda head: (head.created_at, head.session_id)
        )
        for head in heads:
            seen = self._before.get(head.session_id, 0)
            self.after[head.session_id] = seen
            if head.seq < seen:
                raise UsageError(
                    f"The cursor has {seen} events of {head.session_id}, and the store {head.seq}: the store was "
                    "restored since. Start with a new cursor."
                )
            if head.seq > seen:
                yield from self._of(head, seen)

    def _of(self, head: Head, seen: int) -> Iterator[AuditRecord]:
        try:
            events = [decode_event(row) for row in self._store.sessions.journal(head.session_id)]
        except Erased as error:
            print(f"sayso: {head.session_id} is left out: {error}", file=sys.stderr)
            self.after[head.session_id] = head.seq
            return
        except (Corrupt, MalformedJournal) as error:
            self.damaged.append(f"{head.session_id} is left out: {error}")
            return
        self.sessions += 1
        for record in audit(events, after=seen, content=self._content):
            self.count += 1
            yield record
        self.after[head.session_id] = len(events)


# --- seals ---------------------------------------------------------------------------------------------------


def _write_sealed(store: Store, output: Path, lines: Iterable[bytes], before: str | None) -> dict[str, Any]:
    """Write a new file and its seal beside it, readable by their owner only; the seal. Raises `UsageError`."""
    if output.exists():
        raise UsageError(f"{output} exists; name a new file.")
    with writable(output), durable_file(output) as file:
        digest = _to_stream(file, lines)
        seal = _sign(store, digest, before)
        with durable_file(seal_file(output)) as beside:
            beside.write(encode(seal))
    return seal


def _to_stream(stream: BinaryIO, parts: Iterable[bytes]) -> str:
    """Write the parts; the SHA-256 of them all."""
    digest = sha256()
    for part in parts:
        digest.update(part)
        stream.write(part)
    stream.flush()
    return digest.hexdigest()


def _sign(store: Store, digest: str, before: str | None) -> dict[str, Any]:
    seal: dict[str, Any] = {"version": 1, "format": "jsonl", "sha256": digest, "after": before}
    return {**seal, "mac": _mac(store, _PURPOSE, seal)}


def _mac(store: Store, purpose: str, told: dict[str, Any]) -> str:
    return store.sign(purpose, canonical(told)).hex()


def broken_seal(file: Path, sealer: Sealer | None) -> str | None:
    """Return the fault of a sealed file, or None if it is intact. Without a key only its bytes are compared."""
    try:
        seal = decode_signed(seal_file(file).read_bytes())
        mac = bytes.fromhex(seal.pop("mac"))
        with file.open("rb") as sealed:
            same = file_digest(sealed, "sha256").hexdigest() == seal["sha256"]
    except (OSError, NotJson, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its seal cannot be read ({error})"
    if not same:
        return "the file was changed since it was sealed"
    if sealer is not None and not hmac.compare_digest(sealer.mac(b"sign", _PURPOSE, canonical(seal)), mac):
        return "its seal was changed, or was made with another key (SAYSO_SECRET_KEY)"
    return None


def seal_file(file: Path) -> Path:
    """Return the path of a file's seal."""
    return file.with_name(f"{file.name}.seal")


def _read_cursor(cursor: Path) -> dict[str, Any]:
    with suppress(OSError, NotJson, KeyError, TypeError, AttributeError):
        found: dict[str, Any] = decode_signed(cursor.read_bytes())
        if found["version"] == 1 and all(isinstance(seq, int) for seq in found["after"].values()):
            return {name: found[name] for name in ("version", "after", "seal", "mac")}
    raise UsageError(f"{cursor} is no cursor of an audit export; name a new file to export everything.")


def _own_cursor(store: Store, cursor: Path | None, read: dict[str, Any] | None) -> dict[str, Any]:
    """Return the position to continue from: a cursor that this store has signed, or the beginning. Raises `UsageError`."""
    if read is None:
        return {"after": {}, "seal": None}
    mac = read.pop("mac")
    if not isinstance(mac, str) or not hmac.compare_digest(mac.encode(), _mac(store, _CURSOR, read).encode()):
        raise UsageError(
            f"{cursor} was changed, or is a cursor of another store; name a new file to export everything."
        )
    return read
