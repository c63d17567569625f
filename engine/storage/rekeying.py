"""Encrypts what a store holds in plain, wraps its data keys anew, and erases: for commands, in transactions of milliseconds.

Each can be killed at any time and begun again: what is left to do is what the rows say. MACs and chains are over what is
stored, so a session whose bodies are encrypted later gets its chain anew, in one transaction and only where it verifies. What
does not verify stays as it is: signing it anew would make it believed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from engine.journal.records import DataKey, Head
from engine.language.codec import Json, decode
from engine.language.errors import Corrupt, Erased, SessionError, StorageError, UnknownSession
from engine.storage.flows import TEXT_ABOUT, TEXTS
from engine.storage.sealing import ENCRYPTED, JOURNAL, JournalRecord, StoredHead, check_chain, sealed
from engine.storage.store import DatabaseStore
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
from engine.storage.vault import ERASED, Vault

_SECONDS = 0.02
"""How long a transaction takes before the next one begins."""
_AT_ONCE = 200
_PLAIN_TEXTS = "SELECT digest FROM flows WHERE digest > ? AND substr(body, 1, 1) != ? ORDER BY digest LIMIT ?"
_TEXT = "SELECT body FROM flows WHERE digest = ?"
_PUT_TEXT = "UPDATE flows SET body = ? WHERE digest = ?"
_PLAIN_JOURNALS = "SELECT DISTINCT session FROM journal WHERE substr(body, 1, 1) != ?"
_PLAIN_SNAPSHOTS = "SELECT session_id FROM snapshots WHERE substr(body, 1, 1) != ?"
_SESSIONS = "SELECT session_id FROM sessions ORDER BY n"
_IS_PLAIN = "SELECT 1 FROM journal WHERE session = ? AND substr(body, 1, 1) != ? LIMIT 1"
_UNSENT = "SELECT 1 FROM outbox WHERE session_id = ? AND state = 'pending' LIMIT 1"
_EVENTS = "SELECT seq, version, body, mac FROM journal WHERE session = ? ORDER BY seq"
_PUT_EVENTS = "UPDATE journal SET body = ?, mac = ? WHERE session = ? AND seq = ?"
_PUT_CHAIN = "UPDATE sessions SET chain = ?, mac = ? WHERE session_id = ?"
_SNAPSHOT = SNAPSHOTS.where("session_id = ?")
_DROP_SNAPSHOT = "DELETE FROM snapshots WHERE session_id = ?"
_COUNT_KEYS = "SELECT key_id, count(*) FROM data_keys GROUP BY key_id"
_UNDER = DATA_KEYS.where("key_id = ? AND scope > ? ORDER BY scope LIMIT ?")
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


@dataclass
class Done:
    """What was done, and what was left as it is since it does not verify."""

    rows: int = 0
    sessions: int = 0
    damaged: int = 0


def vault_of(store: DatabaseStore) -> Vault:
    """What the store encrypts with. Raises `StorageError` where it does not."""
    if store.vault is None or not store.vault.wrapping.ciphers:
        raise StorageError("No key is given to encrypt with: set SAYSO_ENCRYPTION_KEYS. Nothing was changed.")
    return store.vault


# --- encrypting what is plain ----------------------------------------------------------------------------------


def encrypt_all(store: DatabaseStore) -> Iterator[Done]:
    """Encrypt every body that is plain, and say after each transaction how far it is. Only while nobody else uses the
    store: others know where its chains stand."""
    vault_of(store)
    done = Done()
    for table in (PROMPTS, INBOX, OUTBOX, KEPT, FORMS):
        yield from _all_rows(store, table, done)
    yield from _all_texts(store, done)
    yield from _all_sessions(store, done)


def plain(store: DatabaseStore) -> int:
    """How many rows hold something that is not encrypted."""
    with store._db.read():
        found = [store._number(table.count_plain, *[ENCRYPTED] * len(table.secret)) for table in _WITH_BODIES]
        return sum(found) + store._number(_COUNT_TEXTS, ENCRYPTED) + store._number(_COUNT_EVENTS, ENCRYPTED)


_WITH_BODIES: tuple[Table[Any], ...] = (PROMPTS, INBOX, OUTBOX, KEPT, FORMS, SNAPSHOTS)
_COUNT_TEXTS = "SELECT count(*) FROM flows WHERE substr(body, 1, 1) != ?"
_COUNT_EVENTS = "SELECT count(*) FROM journal WHERE substr(body, 1, 1) != ?"


def _all_rows(store: DatabaseStore, table: Table[Any], done: Done) -> Iterator[Done]:
    last: int | str = 0 if table.first in ("n", "id") else ""
    one = table.where(f"{table.first} = ?")
    marks = [ENCRYPTED] * len(table.secret)
    while True:
        with store._db.write():
            keys = store._db.all(table.find_plain, (last, *marks, _AT_ONCE))
            for (key,) in keys:
                try:
                    record = store._held(table, one, key)
                except Corrupt:
                    done.damaged += 1
                    continue
                if record is not None:
                    store._update(table, record, key)
                    done.rows += 1
        if not keys:
            return
        last = keys[-1][0]
        yield done


def _all_texts(store: DatabaseStore, done: Done) -> Iterator[Done]:
    vault, last = vault_of(store), ""
    while True:
        with store._db.write():
            keys = store._db.all(_PLAIN_TEXTS, (last, ENCRYPTED, _AT_ONCE))
            for (digest,) in keys:
                try:
                    body = vault.encrypted(TEXTS, (TEXT_ABOUT, digest), store.flow(digest))
                except Corrupt:
                    done.damaged += 1
                    continue
                store._db.run(_PUT_TEXT, (body, digest))
                done.rows += 1
        if not keys:
            return
        last = keys[-1][0]
        yield done


def _all_sessions(store: DatabaseStore, done: Done) -> Iterator[Done]:
    with store._db.read():
        numbers = {number for (number,) in store._db.all(_PLAIN_JOURNALS, (ENCRYPTED,))}
        left = {session_id for (session_id,) in store._db.all(_PLAIN_SNAPSHOTS, (ENCRYPTED,))}
        every = [str(session_id) for (session_id,) in store._db.all(_SESSIONS)]
    left |= {session_id for session_id in every if session_number(session_id) in numbers}
    waiting = sorted(left)
    while waiting:
        with store._db.write():
            until = time.monotonic() + _SECONDS
            for _ in range(len(waiting)):
                try:
                    _encrypt_session(store, waiting.pop())
                    done.sessions += 1
                except (Corrupt, UnknownSession):
                    done.damaged += 1
                if time.monotonic() >= until:
                    break
        yield done


def _encrypt_session(store: DatabaseStore, session_id: str) -> None:
    """Encrypt the journal and the snapshot of a session, and give it its chain anew. Raises `Corrupt`, and changes nothing then."""
    vault, sealer, db = vault_of(store), store._sealer, store._db
    number, head = session_number(session_id), store._stored(session_id)
    records = [JournalRecord(*row) for row in db.all(_EVENTS, (number,))]
    check_chain(sealer, head, records)
    chain, chains = head.origin, {head.origin: head.origin}
    for record in records:
        body = record.body
        if body[:1] != ENCRYPTED:
            body = vault.encrypted(session_id, (JOURNAL, record.seq), body)
        chain = chains[record.mac] = sealer.link(session_id, record.seq, chain, record.version, body)
        db.run(_PUT_EVENTS, (body, chain, number, record.seq))
    after = sealed(sealer, head.but(chain=chain))
    db.run(_PUT_CHAIN, (after.chain, after.mac, session_id))
    _encrypt_snapshot(store, head, chains)
    store._forget(session_id)


def _encrypt_snapshot(store: DatabaseStore, head: StoredHead, chains: dict[bytes, bytes]) -> None:
    """Encrypt the snapshot, whose place in the chain has another MAC by now. One that does not fit is a cache, and goes."""
    try:
        snapshot = store._get(SNAPSHOTS, _SNAPSHOT, head.session_id)
    except Corrupt:
        snapshot = None
    if snapshot is not None and snapshot.chain in chains:
        store._update(SNAPSHOTS, snapshot.but(chain=chains[snapshot.chain]))
    else:
        store._db.run(_DROP_SNAPSHOT, (head.session_id,))


# --- keys ------------------------------------------------------------------------------------------------------


def keys_in_use(store: DatabaseStore) -> dict[str, int]:
    """How many data keys each key wraps, by its id."""
    with store._db.read():
        return {str(key_id): int(count) for key_id, count in store._db.all(_COUNT_KEYS) if key_id != ERASED}


def rotate(store: DatabaseStore) -> Iterator[int]:
    """Wrap all data keys with the first key, and say after each transaction how many that were. Bodies stay as they are, and
    others may use the store meanwhile. Raises `Corrupt` for a data key that was changed outside."""
    vault = vault_of(store)
    count = 0
    for key_id in [key_id for key_id in vault.ids() if key_id != vault.wrapping.first]:
        last = ""
        while True:
            with store._db.write():
                rows = store._all_held(_UNDER, (key_id, last, _AT_ONCE))
                for row in rows:
                    _rewrap(store, vault, row)
            if not rows:
                break
            last, count = rows[-1][0], count + len(rows)
            yield count


def _rewrap(store: DatabaseStore, vault: Vault, row: tuple[object, ...]) -> None:
    record = DATA_KEYS.verified(store._sealer, row)
    if record is None:
        raise Corrupt(f"The data key of {row[0]} was changed outside this program.")
    store._update(DATA_KEYS, vault.wrapping.wrapped(record.scope, vault.wrapping.unwrapped(record)))


# --- erasing ---------------------------------------------------------------------------------------------------


def erase_session(store: DatabaseStore, session_id: str) -> None:
    """Erase what a session held. Its head, its encrypted journal and its data key's place remain, so that its chain verifies;
    prompts, intents, its snapshot go, and what the inbox took for it is emptied. Raises `SessionError`, `Corrupt`."""
    with store._db.thorough():
        store._db.atomically(lambda: _erase_session(store, session_id))
    if store.vault is not None:
        store.vault.forget()


def _erase_session(store: DatabaseStore, session_id: str) -> None:
    head = store.head(session_id)
    if head is None:
        raise UnknownSession(f"There is no session {session_id}.")
    refuse_to_erase(store, head)
    keys = _message_keys(store, session_id)
    store._db.run(
        DATA_KEYS.upsert("scope"), DATA_KEYS.sealed(store._sealer, DataKey(session_id, ERASED, b""))
    )
    for statement in _GONE:
        store._db.run(statement, (session_id,))
    _empty(
        store, store._db.all(_INBOX_OF, (session_id, head.thread_key, orjson.dumps(sorted(keys)).decode()))
    )
    store._forget(session_id)


def refuse_to_erase(store: DatabaseStore, head: Head) -> None:
    """Raise `SessionError` for a session that cannot be erased: it goes on, a bot is about to send what it says, or its rows
    are plain."""
    if head.ended_at is None and not head.quarantined:
        raise SessionError(f"Session {head.session_id} is {head.status}: end it before it is erased.")
    with store._db.read():
        is_plain = store._db.one(_IS_PLAIN, (session_number(head.session_id), ENCRYPTED))
        unsent = store._db.one(_UNSENT, (head.session_id,))
    if unsent and store.serving():
        raise SessionError(
            f"What session {head.session_id} says last is not sent yet: try again in a moment."
        )
    if is_plain:
        raise SessionError(
            f"Session {head.session_id} has rows that are not encrypted, which no key erases: run `sayso store encrypt` first, or "
            "delete the session."
        )


def is_erased(store: DatabaseStore, session_id: str) -> bool:
    """Whether what the session held was erased."""
    with store._db.read():
        row = store._db.one(_KEY, (session_id,))
    record = None if row is None else DATA_KEYS.verified(store._sealer, row)
    return record is not None and record.key_id == ERASED


def _message_keys(store: DatabaseStore, session_id: str) -> set[str]:
    """The keys of the inbox rows that a session has taken, as far as it can be read."""
    found: set[str] = set()
    try:
        for event in store.journal(session_id):
            found |= _named_key(decode(event))
    except (Corrupt, Erased):
        pass
    return found


def _named_key(value: Json) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_named_key, value))
    if not isinstance(value, dict):
        return set()
    own = {value["key"]} if isinstance(value.get("key"), str) else set()
    return own.union(*map(_named_key, value.values()))


def _empty(store: DatabaseStore, ids: Iterable[tuple[int]]) -> None:
    for (row_id,) in ids:
        try:
            row = store._held(INBOX, _INBOX, row_id)
        except Corrupt:
            continue
        if row is not None:
            store._empty(row)


def naming(person: str) -> Callable[[bytes], bool]:
    """Finds out whether a body names somebody by this id or address."""
    pattern = re.compile(rb"(?<![\w.+-])%b(?![\w-])" % re.escape(person.encode()), re.IGNORECASE)
    return lambda body: pattern.search(body) is not None


def sessions_naming(store: DatabaseStore, person: str) -> list[Head]:
    """All sessions whose journal names a person: who started, said or decided something, was asked or mentioned."""
    named = naming(person)
    found = []
    for head in store.heads(limit=None):
        try:
            if any(map(named, store.journal(head.session_id))):
                found.append(head)
        except (Corrupt, Erased):
            continue
    return found


def erase_elsewhere(store: DatabaseStore, person: str) -> int:
    """Take what names a person outside of sessions: notes and grants, messages that were taken, and what was sent of no
    session. How many rows."""
    with store._db.thorough():
        return store._db.atomically(lambda: _erase_elsewhere(store, naming(person)))


def _erase_elsewhere(store: DatabaseStore, named: Callable[[bytes], bool]) -> int:
    taken = [key for key, row in _readable(store, INBOX, _INBOX_DONE) if named(row.payload)]
    sent = [key for key, row in _readable(store, OUTBOX, _OUTBOX_DONE) if named(row.payload)]
    kept = [key for key, row in _readable(store, KEPT, _KEPT_ALL) if named(row.body)]
    _empty(store, taken)
    store._db.many(_DROP_OUTBOX, sent)
    store._db.many(_DROP_KEPT, kept)
    return len(taken) + len(sent) + len(kept)


def _readable(store: DatabaseStore, table: Table[R], ids: str) -> Iterator[tuple[tuple[int], R]]:
    """The records of a table that can be read, each with its number."""
    for key in store._db.all(ids):
        try:
            row = store._get(table, table.where(f"{table.first} = ?"), *key)
        except (Corrupt, Erased):
            continue
        if row is not None:
            yield key, row
