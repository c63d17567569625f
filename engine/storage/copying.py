"""A copy of everything that a store holds, in another one: from SQLite to Postgres, or back.

Rows are the same in both, with their numbers and their MACs, so nothing is signed anew, and what was damaged stays so. The
copy is one transaction: it is there as a whole and was read back, or nothing is.
"""

from __future__ import annotations

from engine.journal.records import Head
from engine.language.errors import Corrupt, Erased, StorageError
from engine.storage.store import META, PUT_META, DatabaseStore, has_rows
from engine.storage.tables import COPIED, Copied

_AT_ONCE = 500


def copy_store(source: DatabaseStore, target: DatabaseStore) -> int:
    """Copy all rows to an empty store with the same key; how many sessions came. Raises `StorageError`."""
    if has_rows(target._db):
        raise StorageError(
            "The store that is copied to has rows already; name a new one. Nothing was changed."
        )
    for store, which in ((source, "from"), (target, "to")):
        if others := store.serving():
            raise StorageError(
                f"The store that is copied {which} is in use by {', '.join(others)}. Stop them first. Nothing was changed."
            )
    if (reason := source.suspended()) is not None:
        raise StorageError(f"The store that is copied from is suspended: {reason} Nothing was changed.")
    source.changed()
    with target._db.write():
        with source._db.read():
            sessions = _copy_all(source, target)
        if source.changed():
            raise StorageError(
                "The store that is copied from was written to meanwhile. Stop who did. Nothing was changed."
            )
    return sessions


def _copy_all(source: DatabaseStore, target: DatabaseStore) -> int:
    for table in COPIED:
        _copy(source, target, table)
    if (workspace := source._db.one(META, ("workspace",))) is not None:
        target._db.run(PUT_META, ("workspace", *workspace))
    heads = source.heads(limit=None)
    for head in heads:
        _compare(source, target, head)
    return len(heads)


def _copy(source: DatabaseStore, target: DatabaseStore, table: Copied) -> None:
    last: int | str = table.before
    count = 0
    while rows := source._db.all(table.read, (last, _AT_ONCE)):
        try:
            target._db.many(table.write, rows)
        except target._db.refused as error:
            raise StorageError(
                f"A row of {table.name} cannot be copied. {target._db.row_error(error)} Nothing was changed."
            ) from error
        last, count = rows[-1][0], count + len(rows)
    target._db.follow(table.follow)
    if target._number(table.number) != count:
        raise StorageError(f"The copy has another number of rows of {table.name}. Nothing was changed.")


def _compare(source: DatabaseStore, target: DatabaseStore, head: Head) -> None:
    """Read a session back. One that does not verify has to be as it was. Raises `StorageError`."""
    if _state_of(source, head.session_id) != _state_of(target, head.session_id):
        raise StorageError(f"Session {head.session_id} is not the same in the copy. Nothing was changed.")


def _state_of(store: DatabaseStore, session_id: str) -> object:
    try:
        return store.head(session_id), list(store.journal(session_id)), store.prompts(session_id=session_id)
    except (Corrupt, Erased) as error:
        return str(error)
