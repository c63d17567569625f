"""`audit export`: who was asked, who decided what and when, what ran, as JSON lines that an auditor checks with a public key
(`deploy/verify_audit.py`); `audit key`: that key.

An export makes a checkpoint first and ends there. With `--cursor` it continues where the last one ended: the cursor is the
checkpoint of that end. It is written last, so a process that is killed in between exports the same records once more, under
the same ids. It is signed: whoever can write to it cannot hide records from the next export.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from bot.compose.attesting import attest_all
from bot.terminal.console import Exit, Place, UsageError, clean, opened, plural, writable
from engine.run import evidence
from engine.run.stored import utc_now
from engine.storage.private_files import durable_file
from engine.storage.store import Store


def export_audit(place: Place, output: Path | None, cursor: Path | None, *, content: bool) -> int:
    """Write the records since the cursor. Raises `UsageError` for files that cannot be used, `StorageError`."""
    settings = place.settings()
    if cursor is not None and output is not None and cursor.resolve() == output.resolve():
        raise UsageError(f"{cursor} is the output file; name another file for the cursor.")
    read = None
    if cursor is not None and cursor.exists():
        try:
            note = cursor.read_text()
            read = note, evidence.size_of(note)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{cursor} is not a cursor of an audit export; name a new file to export everything."
            ) from error
    if output is not None and output.exists():
        raise UsageError(f"{output} exists; name a new file.")
    with opened(settings, "nothing to export") as store:
        size = 0 if read is None else _own_cursor(store, cursor, *read)
        attest_all(settings, store, utc_now())
        export = evidence.Export(store, size, content=content)
        if output is None:
            with writable("The export"):
                _to_stream(sys.stdout.buffer, export)
        else:
            with writable(output), durable_file(output) as file:
                _to_stream(file, export)
        if cursor is not None and export.note is not None and not export.damaged:
            with writable(cursor), durable_file(cursor) as file:
                file.write(export.note.encode())
    for problem in (*export.damaged, *sorted(export.erased)):
        print(f"sayso: {clean(problem)}", file=sys.stderr)
    if output is not None:
        told = f"{plural(export.count, 'record')} of {plural(len(export.sessions), 'session')}"
        print(f"{told} written to {clean(str(output))}. Check it: {place.command('verify', str(output))}")
    return Exit.STORE if export.damaged else Exit.OK


def show_key(place: Place, *, rotate: bool) -> int:
    """Print the public key of the audit log, or make another one the one that signs. Raises `UsageError`, `StorageError`."""
    settings = place.settings()
    with opened(settings, "no key yet") as store:
        attest_all(settings, store, utc_now())
        if rotate:
            evidence.rotate(store, utc_now())
            attest_all(settings, store, utc_now())
        for key in evidence.keys(store):
            print(key)
    return Exit.OK


def broken_export(file: Path, keys: list[str]) -> tuple[str | None, str]:
    """Return the fault of an export or None, and what was found."""
    from bot.cli.verify_audit import Broken, check

    try:
        return None, check(keys, [(file.name, file.read_bytes())])
    except Broken as error:
        return str(error), ""


def is_export(file: Path) -> bool:
    """True for an export of the audit log or a file of checkpoints, however damaged behind its beginning."""
    try:
        with file.open("rb") as begun:
            head = begun.read(9)
    except OSError:
        return False
    return head == b'{"export"' or head.startswith(b"sayso/") or file.suffix == ".jsonl"


def _to_stream(stream: BinaryIO, export: evidence.Export) -> None:
    for line in export.lines():
        stream.write(line + b"\n")
    stream.flush()


def _own_cursor(store: Store, cursor: Path | None, note: str, size: int) -> int:
    """Return the size of the log to continue from. Raises `UsageError` for a cursor that is not of this store."""
    if size > store.evidence.size() > 0:
        raise UsageError(
            f"The cursor has {size} leaves of the audit log, but the store has {store.evidence.size()}: the "
            "store was restored, or the cursor belongs to another store. Start with a new cursor."
        )
    if size < 1 or size > store.evidence.size() or store.evidence.leaf(size).note != note:
        raise UsageError(
            f"{cursor} was changed, or belongs to another store; name a new file to export everything."
        )
    return size
