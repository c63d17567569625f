"""The key with which the rows of an SQLite database are signed: found, made, and checked before any row is."""

from __future__ import annotations

from pathlib import Path

from engine.language.errors import KeyMissing
from engine.storage.anchor import remove_anchor
from engine.storage.connection import Connection
from engine.storage.macs import Sealer
from engine.storage.private_files import make_key, read_key

META = "SELECT value, mac FROM meta WHERE name = ?"
PUT_META = """INSERT INTO meta (name, value, mac) VALUES (?, ?, ?)
 ON CONFLICT (name) DO UPDATE SET value = excluded.value, mac = excluded.mac"""
_ANY_ROW = """SELECT EXISTS (SELECT 1 FROM sessions) OR EXISTS (SELECT 1 FROM journal)
 OR EXISTS (SELECT 1 FROM inbox) OR EXISTS (SELECT 1 FROM prompts) OR EXISTS (SELECT 1 FROM timers)
 OR EXISTS (SELECT 1 FROM outbox) OR EXISTS (SELECT 1 FROM marks)
 OR EXISTS (SELECT 1 FROM meta WHERE name = 'workspace')"""


def key_for(db: Connection, file: Path, given: bytes | None) -> bytes:
    """The key of a database: the one that is given, else that in its file, which is made where nothing was written yet.
    Raises `KeyMissing`."""
    if given is not None:
        return given
    path = file.with_name(f"{file.name}.key")
    key = read_key(path)
    if key is not None:
        return key
    if _has_rows(db):
        raise KeyMissing(
            f"{file} has rows, but its key {path.name} is not beside it. Restore the key file from a copy, "
            "or give the key in SAYSO_SECRET_KEY; without it nothing in the database can be trusted."
        )
    return make_key(path)


def _has_rows(db: Connection) -> bool:
    with db.read():
        row = db.one(_ANY_ROW)
    return bool(row and row[0])


def check_key(db: Connection, file: Path, sealer: Sealer) -> None:
    """Refuse a key with which the rows were not written, before each of them is taken for corrupt."""
    mac = sealer.mac(b"meta", "key", "sayso")
    with db.read():
        row = db.one(META, ("key",))
    if row == ("sayso", mac):
        return
    if row is not None and _has_rows(db):
        raise KeyMissing(
            f"The key given for {file} is not the one that its rows were written with; "
            "check SAYSO_SECRET_KEY and the key file."
        )
    with db.write():
        db.run(PUT_META, ("key", "sayso", mac))
        db.run("DELETE FROM freshness")
    if row is not None:
        remove_anchor(file)
