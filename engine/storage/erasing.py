"""Erases what sessions held and what names a person, and finds what cannot be erased since it is plain."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from engine.journal.phases import standing
from engine.journal.records import DataKey, Head
from engine.language.codec import Json, decode
from engine.language.errors import Corrupt, Erased, SessionError, UnknownSession
from engine.storage.sealing import ENCRYPTED
from engine.storage.store import Store
from engine.storage.tables import (
    DATA_KEYS,
    FORMS,
    INBOX,
    KEPT,
    OUTBOX,
    PROMPTS,
    SNAPSHOTS,
    R,
    Table,
    session_number,
)
from engine.storage.vault import ERASED

_WITH_BODIES: tuple[Table[Any], ...] = (PROMPTS, INBOX, OUTBOX, KEPT, FORMS, SNAPSHOTS)
_COUNT_TEXTS = "SELECT count(*) FROM flows WHERE substr(body, 1, 1) != ?"
_COUNT_EVENTS = "SELECT count(*) FROM journal WHERE substr(body, 1, 1) != ?"
_IS_PLAIN = "SELECT 1 FROM journal WHERE session = ? AND substr(body, 1, 1) != ? LIMIT 1"
_UNSENT = "SELECT 1 FROM outbox WHERE session_id = ? AND state = 'pending' LIMIT 1"
_DROP_SNAPSHOT = "DELETE FROM snapshots WHERE session_id = ?"
_KEY = DATA_KEYS.where("scope = ?")
_GONE = (
    _DROP_SNAPSHOT,
    "DELETE FROM prompts WHERE session_id = ?",
    "DELETE FROM timers WHERE session_id = ?",
    "DELETE FROM outbox WHERE session_id = ?",
    "DELETE FROM kept WHERE kind = 'files' AND scope = ?",
)
_INBOX_OF = """SELECT id FROM inbox WHERE outcome IS NOT NULL AND (session_id = ?1 OR thread_key = ?2
 OR key IN (SELECT value FROM json_each(?3))) ORDER BY id"""
_INBOX_DONE = "SELECT id FROM inbox WHERE outcome IS NOT NULL ORDER BY id"
_OUTBOX_DONE = "SELECT id FROM outbox WHERE state != 'pending' AND session_id IS NULL ORDER BY id"
_KEPT_ALL = "SELECT n FROM kept ORDER BY n"
_DROP_OUTBOX = "DELETE FROM outbox WHERE id = ?"
_DROP_KEPT = "DELETE FROM kept WHERE n = ?"
_INBOX = INBOX.where("id = ?")


def erase_session(store: Store, session_id: str) -> None:
    """Erase what a session held. Its head, its encrypted journal and its data key's place remain, so that its chain verifies;
    prompts, intents, its snapshot go, and what the inbox took for it is emptied. Raises `SessionError`, `Corrupt`."""
    with store._db.thorough():
        store._db.atomically(lambda: _erase_session(store, session_id))
    if store.vault is not None:
        store.vault.forget()


def _erase_session(store: Store, session_id: str) -> None:
    head = store.sessions.head(session_id)
    if head is None:
        raise UnknownSession(f"There is no session {session_id}.")
    refuse_to_erase(store, head)
    # The keys of the inbox rows that a session has taken, as far as it can be read.
    keys: set[str] = set()
    try:
        for event in store.sessions.journal(session_id):
            keys |= _named_key(decode(event))
    except (Corrupt, Erased):
        pass
    store._db.run(
        DATA_KEYS.upsert("scope"), DATA_KEYS.sealed(store._sealer, DataKey(session_id, ERASED, b""))
    )
    for statement in _GONE:
        store._db.run(statement, (session_id,))
    _empty(
        store, store._db.all(_INBOX_OF, (session_id, head.thread_key, orjson.dumps(sorted(keys)).decode()))
    )
    store.sessions.forget(session_id)


def plain(store: Store) -> int:
    """Return the number of rows with unencrypted content."""
    with store._db.read():
        found = [store._number(table.count_plain, *[ENCRYPTED] * len(table.secret)) for table in _WITH_BODIES]
        return sum(found) + store._number(_COUNT_TEXTS, ENCRYPTED) + store._number(_COUNT_EVENTS, ENCRYPTED)


def refuse_to_erase(store: Store, head: Head) -> None:
    """Raise `SessionError` for a session that cannot be erased: it continues, a bot is about to send what it says, or its rows
    are plain."""
    if head.ended_at is None and not head.quarantined:
        raise SessionError(
            f"Session {head.session_id} is {standing(head.status, head.phase)}: end it before you erase it."
        )
    with store._db.read():
        is_plain = store._db.one(_IS_PLAIN, (session_number(head.session_id), ENCRYPTED))
        unsent = store._db.one(_UNSENT, (head.session_id,))
    if unsent and store.serving():
        raise SessionError(
            f"The last messages of session {head.session_id} are not sent yet: try again in a moment."
        )
    if is_plain:
        raise SessionError(
            f"Session {head.session_id} has unencrypted rows, which erasing a key does not remove: continue in an encrypted copy (`sayso store copy`), or delete the session."
        )


def is_erased(store: Store, session_id: str) -> bool:
    """True if the session's content was erased."""
    with store._db.read():
        row = store._db.one(_KEY, (session_id,))
    record = None if row is None else DATA_KEYS.verified(store._sealer, row)
    return record is not None and record.key_id == ERASED


def _named_key(value: Json) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_named_key, value))
    if not isinstance(value, dict):
        return set()
    own = {value["key"]} if isinstance(value.get("key"), str) else set()
    return own.union(*map(_named_key, value.values()))


def _empty(store: Store, ids: Iterable[tuple[int]]) -> None:
    for (row_id,) in ids:
        try:
            row = store._held(INBOX, _INBOX, row_id)
        except Corrupt:
            continue
        if row is not None:
            store.inbox.empty_row(row)


def naming(person: str) -> Callable[[bytes], bool]:
    """Finds out whether a body names somebody by this id or address."""
    pattern = re.compile(rb"(?<![\w.+-])%b(?![\w-])" % re.escape(person.encode()), re.IGNORECASE)
    return lambda body: pattern.search(body) is not None


def sessions_naming(store: Store, person: str) -> list[Head]:
    """All sessions whose journal names a person: who started, said or decided something, was asked or mentioned."""
    named = naming(person)
    found = []
    for head in store.sessions.heads(limit=None):
        try:
            if any(map(named, store.sessions.journal(head.session_id))):
                found.append(head)
        except (Corrupt, Erased):
            continue
    return found


def erase_elsewhere(store: Store, person: str) -> int:
    """Take what names a person outside of sessions: notes and grants, messages that were taken, and what was sent of no
    session. How many rows."""
    with store._db.thorough():
        return store._db.atomically(lambda: _erase_elsewhere(store, naming(person)))


def _erase_elsewhere(store: Store, named: Callable[[bytes], bool]) -> int:
    taken = [key for key, row in _readable(store, INBOX, _INBOX_DONE) if named(row.payload)]
    sent = [key for key, row in _readable(store, OUTBOX, _OUTBOX_DONE) if named(row.payload)]
    kept = [key for key, row in _readable(store, KEPT, _KEPT_ALL) if named(row.body)]
    _empty(store, taken)
    store._db.many(_DROP_OUTBOX, sent)
    store._db.many(_DROP_KEPT, kept)
    return len(taken) + len(sent) + len(kept)


def _readable(store: Store, table: Table[R], ids: str) -> Iterator[tuple[tuple[int], R]]:
    """The records of a table that can be read, each with its number."""
    for key in store._db.all(ids):
        try:
            row = store._get(table, table.where(f"{table.first} = ?"), *key)
        except (Corrupt, Erased):
            continue
        if row is not None:
            yield key, row
