"""`store`, `backup`, `restore`: the store as a whole. `sessions delete`, `purge` and `release`: what lies in
it. `verify`: whether the history of a session can have happened, and whether anybody changed it. `doctor`:
prints the checks as they come in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bot.cli.audit import broken_export, is_export
from bot.cli.lookup import find_session
from bot.compose.suspension import may_repeat
from bot.config.settings import Settings
from bot.terminal.console import (
    Exit,
    Place,
    UsageError,
    clean,
    database_exists,
    database_file,
    opened,
    print_json,
    writing,
)
from engine.decide.limits import pending
from engine.flow import Flow
from engine.flow.load import flow_from_body
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.records import Head
from engine.journal.snapshot import events_in, read_export, to_json
from engine.journal.state import State
from engine.language.codec import Json, canonical, encode
from engine.language.errors import (
    Corrupt,
    Erased,
    FlowError,
    KeyMissing,
    MalformedJournal,
    SessionError,
    SnapshotRefused,
)
from engine.run import evidence
from engine.run.export import check_signature
from engine.run.stored import utc_now
from engine.run.verify import verify
from engine.storage.errors import NotAlone
from engine.storage.open import place_of
from engine.storage.private_files import read_key
from engine.storage.sealing import BEGINS, Sealer
from engine.storage.store import Store


def release_store(place: Place) -> int:
    """Let a suspended store continue, and say what may be done a second time. Raises `UsageError` for one that is not."""
    settings = place.settings()
    _need(settings)
    with opened(settings) as store:
        reason = store.suspended()
        if reason is None:
            raise UsageError("The store is not suspended; nothing was changed.")
        print(clean(reason))
        standing = list(may_repeat(store))
        if standing:
            print("Work that these did after the given time may be done a second time:")
        for head, stands in standing:
            print(f"  {clean(head.session_id)}  {clean(head.flow_name)}  {clean(stands)}")
        store.unsuspend()
    print("The store is released and continues from its stored state.")
    return Exit.OK


def back_up_store(place: Place, target: Path) -> int:
    """Write a copy of the database, which may be in use. Raises `StorageError`."""
    from engine.storage.sqlite import back_up

    settings = place.settings()
    database = _need(settings)
    with opened(settings) as store:
        sessions, reason = len(store.sessions.heads(limit=1_000_000)), store.suspended()
    if reason is not None:
        print(f"sayso: {clean(reason)}", file=sys.stderr)
    back_up(database, target)
    print(f"{clean(str(target))} holds the database with {sessions} sessions, as it is now.")
    print(
        f"It does not contain the key, and cannot be read without it: keep {database.name}.key too, in "
        "another place."
    )
    return Exit.OK


def restore_store(place: Place, backup: Path) -> int:
    """Put a backup in place of the database. Raises `StorageError`."""
    from engine.storage.sqlite import restore

    settings = place.settings()
    stamp = utc_now()[:19].replace(":", "").replace("-", "")
    kept = restore(_file(settings), backup, settings.secret_key, stamp)
    print(f"{clean(str(backup))} is restored to {_file(settings)}.")
    if kept is not None:
        print(f"The old database is kept as {kept}.")
    print("The store is suspended: work done after the backup may be done a second time.")
    print(
        f"Check what that is: {place.command('doctor')}. Then release it: {place.command('store', 'release')}"
    )
    return Exit.OK


def _need(settings: Settings) -> Path:
    if not database_exists(settings):
        raise UsageError(f"There is no database {_file(settings)} yet.")
    return _file(settings)


def _file(settings: Settings) -> Path:
    file = database_file(settings)
    if file is None:
        raise UsageError(
            f"{place_of(settings.database_url)} is not an SQLite file. Back up a Postgres database with "
            "pg_dump, or copy it to an SQLite file with `sayso store copy`."
        )
    return file


def compact_store(place: Place) -> int:
    """Write the database again without what was deleted. Raises `StorageError` while others use it."""
    settings = place.settings()
    file = database_file(settings)
    if file is None:
        raise UsageError(f"Only an SQLite file can be compacted, not {place_of(settings.database_url)}.")
    with opened(settings, "nothing to compact") as store:
        others = store.serving()
        if others:
            raise NotAlone(who=", ".join(others))
        before = file.stat().st_size
        store.compact()
    after = file.stat().st_size
    print(
        f"{file}: {before / 2**20:.1f} MiB before, {after / 2**20:.1f} MiB now. From now on it shrinks "
        "automatically."
    )
    return Exit.OK


def release_session(place: Place, text: str) -> int:
    """Verify a session from its first event and lift its quarantine. Raises `UsageError`, `SessionError`."""
    with writing(place.settings(), f"no session {text!r}") as store:
        head = find_session(store, text)
        if head.quarantined is None:
            raise UsageError(f"Session {head.session_id} is not on hold; nothing was changed.")
        try:
            events = [decode_event(row) for row in store.sessions.journal(head.session_id)]
            state = derive_state(events)
            flow_from_body(store.flows.text(state.flow_digest))
        except (Corrupt, MalformedJournal) as error:
            raise SessionError(
                f"Session {head.session_id} stays on hold: {error} Restore the database or its key file and "
                "release the session again, or start the flow again."
            ) from error
        if pending(state):
            raise SessionError(
                f"Session {head.session_id} waited for a lock and lost its place when it was put on hold. "
                "Start the flow again."
            )
        store.sessions.release(head.session_id)
    print(f"{clean(head.session_id)} is released: all {len(events)} events verify. It continues.")
    return Exit.OK


# --- verify ------------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """Result of a check: `problem` names the wrong event and the reason; None if the history is possible."""

    session_id: str
    events: int
    signed: bool
    """True if the MACs were checked; without the key only the order was."""
    status: str | None = None
    stands: str | None = None
    """The same as people read it."""
    problem: str | None = None
    unread: str | None = None
    """Why only the MACs were checked; None where the events were read."""

    def to_json(self) -> dict[str, Json]:
        """The verdict for a machine."""
        return {
            "sessionId": self.session_id,
            "verifies": self.problem is None,
            "events": self.events,
            "checked": [*([] if self.unread else ["order"]), *(["signature"] if self.signed else [])],
            "status": self.status,
            "problem": self.problem,
        }


def verify_history(place: Place, what: str, key: str | None = None, *, as_json: bool) -> int:
    """Check an exported file or a session of this home. Raises `UsageError`, `SnapshotRefused`, `StorageError`."""
    file = Path(what)
    if is_export(file):
        keys = [key] if key else []
        if not keys:
            missing = "there is no public key here: give one with --key"
            with opened(place.settings(), missing, verify=True) as store:
                keys = evidence.keys(store)
        if not keys:
            raise UsageError("This store has no audit log. Give the public key of the export with --key.")
        problem, found = broken_export(file, keys)
        if as_json:
            print_json(
                {"file": str(file), "verifies": problem is None, "checked": ["signature"], "problem": problem}
            )
        else:
            print(f"{clean(str(file))} does not verify: {clean(problem)}" if problem else clean(found))
        return Exit.OK if problem is None else Exit.STORE
    if os.path.isfile(file):
        verdict = _of_file(place.settings(), file)
    else:
        with opened(place.settings(), f"no file and no session {what!r}", verify=True) as store:
            verdict = verdict_of(store, find_session(store, what))
    if as_json:
        print_json(verdict.to_json())
    else:
        print(_told(verdict))
    return Exit.OK if verdict.problem is None else Exit.STORE


def _told(verdict: Verdict) -> str:
    name = clean(verdict.session_id)
    if verdict.problem is not None:
        return f"{name} does not verify: {clean(verdict.problem)}"
    if verdict.unread is not None:
        return f"{name} verifies: nobody changed it. Its events were not read: {clean(verdict.unread)}"
    checked = (
        "and nobody changed it"
        if verdict.signed
        else ("but only its order was checked: the key that signed it is missing here (SAYSO_SECRET_KEY)")
    )
    return (
        f"{name} verifies: its {verdict.events} events are a possible history ({verdict.stands}), {checked}."
    )


# --- an exported file ----------------------------------------------------------------------------------------


def readable(settings: Settings, data: bytes) -> bytes:
    """An exported file, decrypted where it is encrypted. Raises `SnapshotRefused`, `KeyMissing`, `SettingsError`."""
    if not data.startswith(BEGINS):
        return data
    from engine.storage.envelopes import disclosed
    from engine.storage.vault import Wrapping

    sealer = _sealer(settings)
    if sealer is None:
        raise KeyMissing(
            "The file is encrypted, and the key that signed it is missing here (SAYSO_SECRET_KEY)."
        )
    return disclosed(Wrapping.of(settings.encryption_keys), sealer, data)


def _of_file(settings: Settings, path: Path) -> Verdict:
    sealer = _sealer(settings)
    try:
        file = read_export(readable(settings, path.read_bytes()))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except KeyMissing as missing:
        from engine.storage.envelopes import check

        if sealer is None:
            raise
        # It is encrypted, and the key for that is not here: only that nobody changed it can be said.
        verdict = Verdict(str(path), 0, signed=True, unread=str(missing))
        try:
            check(sealer, path.read_bytes())
        except SnapshotRefused as error:
            verdict.problem = str(error)
        return verdict
    journal = events_in(file)
    verdict = Verdict(str(file["sessionId"]), len(journal), signed=False)
    try:
        flow = flow_from_body(canonical(file["flow"]))
        # The state beside the journal is what the journal says.
        said = _history(map(encode, file["journal"]), flow)
        if file["sessionId"] != said.session_id:
            raise MalformedJournal(
                f"the file belongs to session {file['sessionId']}, but its journal to {said.session_id}"
            )
        if canonical(file["state"]) != canonical(to_json(said)):
            raise MalformedJournal("the state in the file differs from the state that its journal gives")
        state = _history(map(encode, journal), flow)
        verdict.status, verdict.stands = state.status, state.stands
        verdict.signed = sealer is not None
        if sealer is not None:
            check_signature(file, sealer)
    except (MalformedJournal, FlowError, SnapshotRefused) as error:
        verdict.problem = str(error)
    return verdict


def _sealer(settings: Settings) -> Sealer | None:
    """The key of this home, as far as there is one; no database is opened for it."""
    key, database = settings.secret_key, database_file(settings)
    if key is None and database is not None:
        key = read_key(database.with_name(f"{database.name}.key"))
    return None if key is None else Sealer(key)


# --- a session of this home ----------------------------------------------------------------------------------


def verdict_of(store: Store, head: Head) -> Verdict:
    """Check that the history of a stored session is possible, and unchanged."""
    verdict = Verdict(head.session_id, head.seq, signed=True)
    try:
        rows = list(store.sessions.journal(head.session_id))
        state = _history(rows, None)
        flow = flow_from_body(store.flows.text(state.flow_digest))
        state = _history(rows, flow)
        verdict.status, verdict.stands = state.status, state.stands
        for leaf in store.evidence.of(head.session_id):
            evidence.attested(store, leaf)
    except (Erased, KeyMissing) as error:
        verdict.unread = str(error)
        try:
            store.sessions.check_chain(head.session_id)
        except Corrupt as damage:
            verdict.problem = str(damage)
    except (Corrupt, MalformedJournal, FlowError) as error:
        verdict.problem = str(error)
    return verdict


def _history(rows: Iterable[bytes], flow: Flow | None) -> State:
    events: list[Event] = [decode_event(row) for row in rows]
    try:
        return verify(events, flow)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        # Values of another form than any release writes, deep in an event.
        raise MalformedJournal(f"an event holds something that none can hold: {error!r}") from error
