"""`store`, `backup`, `restore`: the store as a whole; `sessions delete`, `purge` and `release`: what lies in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bot.cli.lookup import also_in_workspace, find_session, need_database
from bot.compose import retention
from bot.compose.suspension import may_repeat
from bot.config.settings import Settings
from bot.terminal.cli_context import Place, database_exists, database_file, opened, writing
from bot.terminal.exit_codes import Exit, UsageError
from bot.terminal.output import clean, plural, print_json
from engine.decide.locks import pending
from engine.flow.load import flow_from_body
from engine.journal.events import decode_event
from engine.journal.fold import derive_state
from engine.journal.records import Head
from engine.journal.transitions import ENDED
from engine.language import timestamps
from engine.language.durations import parse_duration
from engine.language.errors import Corrupt, MalformedJournal, SessionError, StorageError
from engine.run.active import utc_now
from engine.storage.port import Store


def release_store(place: Place) -> int:
    """Let a suspended store go on, and say what may be done a second time. Raises `UsageError` for one that is not."""
    settings = place.settings()
    _need(settings)
    with opened(settings) as store:
        reason = store.suspended()
        if reason is None:
            raise UsageError("The store is not suspended; nothing was changed.")
        print(clean(reason))
        _tell(store)
        store.unsuspend()
    print("The store is released. What it has stored counts from here on.")
    return Exit.OK


def _tell(store: Store) -> None:
    standing = list(may_repeat(store))
    if standing:
        print("What these did after the moment named may be done a second time:")
    for head, stands in standing:
        print(f"  {clean(head.session_id)}  {clean(head.flow_name)}  {clean(stands)}")


def back_up_store(place: Place, target: Path) -> int:
    """Write a copy of the database, which may be in use. Raises `StorageError`."""
    from engine.storage.backups import back_up

    settings = place.settings()
    database = _need(settings)
    with opened(settings) as store:
        sessions, reason = len(store.heads(limit=1_000_000)), store.suspended()
    if reason is not None:
        print(f"sayso: {clean(reason)}", file=sys.stderr)
    back_up(database, target)
    print(f"{clean(str(target))} holds the database with {sessions} sessions, as it is now.")
    print(
        f"The key is not in it, and without the key it cannot be read: keep {database.name}.key too, elsewhere."
    )
    return Exit.OK


def restore_store(place: Place, backup: Path) -> int:
    """Put a backup in place of the database. Raises `StorageError`."""
    from engine.storage.backups import restore

    settings = place.settings()
    stamp = utc_now()[:19].replace(":", "").replace("-", "")
    kept = restore(_file(settings), backup, settings.secret_key, stamp)
    print(f"{clean(str(backup))} is restored to {_file(settings)}.")
    if kept is not None:
        print(f"What was there is kept as {kept}.")
    print("The store is suspended: what was done after the backup may be done a second time.")
    print(
        f"See what that is: {place.command('doctor')}. Then let it go on: {place.command('store', 'release')}"
    )
    return Exit.OK


def _need(settings: Settings) -> Path:
    if not database_exists(settings):
        raise UsageError(f"There is no database {_file(settings)} yet.")
    return _file(settings)


def _file(settings: Settings) -> Path:
    file = database_file(settings)
    if file is None:
        raise UsageError(f"{settings.database_url} is no file, so there is nothing to keep.")
    return file


@also_in_workspace
def delete_sessions(place: Place, texts: Sequence[str], *, dry_run: bool, as_json: bool) -> int:
    """Delete sessions that have ended, or were set aside, with their files. All or none of them are refused."""
    settings = place.settings()
    need_database(settings, f"no session {texts[0]!r}")
    with opened(settings) as store:
        heads = list(
            {head.session_id: head for head in (find_session(store, text) for text in texts)}.values()
        )
        for head in heads:
            _refuse_open(place, head)
        return _delete(retention.Retention.of(settings, store), heads, dry_run=dry_run, as_json=as_json)


def _refuse_open(place: Place, head: Head) -> None:
    if head.status not in ENDED and not head.quarantined:
        abort = place.command("sessions", "abort", head.session_id)
        raise SessionError(
            f"Session {head.session_id} is {head.status}; nothing was deleted. End it first: {abort}"
        )


def purge_sessions(place: Place, older_than: str, *, dry_run: bool, as_json: bool) -> int:
    """Delete all sessions that ended so long ago. Raises `UsageError` for what is no duration."""
    settings = place.settings()
    try:
        seconds = parse_duration(older_than)
    except ValueError as error:
        raise UsageError(f"--older-than takes a duration such as 30d or 12h, not {older_than!r}.") from error
    need_database(settings, "nothing to delete")
    with opened(settings) as store:
        before = timestamps.after(utc_now(), -seconds)
        ids = store.ended(before, limit=None)
        heads = [head for session_id in ids if (head := store.head(session_id)) is not None]
        return _delete(retention.Retention.of(settings, store), heads, dry_run=dry_run, as_json=as_json)


def _delete(kept: retention.Retention, heads: Sequence[Head], *, dry_run: bool, as_json: bool) -> int:
    if not dry_run:
        retention.at_once(retention.deletion(kept, [head.session_id for head in heads]))
    if as_json:
        print_json({"deleted": [head.session_id for head in heads], "dryRun": dry_run})
        return Exit.OK
    for head in heads if dry_run else ():
        ended = f", ended {timestamps.told(head.ended_at)}" if head.ended_at else ", set aside"
        print(f"{clean(head.session_id)}  {clean(head.flow_name)}, {head.status}{ended}")
    count = plural(len(heads), "session")
    print(f"{count} would be deleted; nothing was." if dry_run else f"{count} deleted, with all files.")
    return Exit.OK


def compact_store(place: Place) -> int:
    """Write the database anew without what was deleted. Raises `StorageError` while others use it."""
    settings = place.settings()
    file = database_file(settings)
    if file is None:
        raise UsageError(f"Only an SQLite file is compacted, not {settings.database_url}.")
    need_database(settings, "nothing to compact")
    with opened(settings) as store:
        _refuse_others(store)
        before = file.stat().st_size
        store.compact()
    after = file.stat().st_size
    print(
        f"{file}: {before / 2**20:.1f} MiB before, {after / 2**20:.1f} MiB now. It shrinks by itself from here on."
    )
    return Exit.OK


def _refuse_others(store: Store) -> None:
    others = store.serving()
    if others:
        raise StorageError(
            f"The database is in use by {', '.join(others)}. Stop them first: it is written anew."
        )


def release_session(place: Place, text: str) -> int:
    """Verify a session from its first event and lift its quarantine. Raises `UsageError`, `SessionError`."""
    settings = place.settings()
    need_database(settings, f"no session {text!r}")
    with writing(settings) as store:
        head = find_session(store, text)
        if head.quarantined is None:
            raise UsageError(f"Session {head.session_id} is not set aside; nothing was changed.")
        events = _verify(store, head.session_id)
        store.release(head.session_id)
    print(
        f"{clean(head.session_id)} is released: {events} events verify, and fold to where it stands. It goes on."
    )
    return Exit.OK


def _verify(store: Store, session_id: str) -> int:
    """How many events there are. Raises `SessionError` where the session cannot be trusted."""
    try:
        events = [decode_event(row) for row in store.journal(session_id)]
        state = derive_state(events)
        flow_from_body(store.flow(state.flow_digest))
    except (Corrupt, MalformedJournal) as error:
        raise SessionError(
            f"Session {session_id} stays set aside: {error} Restore the database, or the key beside it, as they were, "
            "and release it again; or start the flow anew."
        ) from error
    if pending(state):
        raise SessionError(
            f"Session {session_id} waited for a lock and lost its place when it was set aside. Start the flow anew."
        )
    return len(events)
