"""`sessions delete`, `sessions purge` and `store compact`: what is kept is made less."""

from __future__ import annotations

from collections.abc import Sequence

from bot.cli.lookup import also_in_workspace, find_session, need_database
from bot.compose import retention
from bot.terminal.cli_context import Place, database_file, opened
from bot.terminal.exit_codes import Exit, UsageError
from bot.terminal.output import clean, plural, print_json
from engine.journal.records import Head
from engine.journal.transitions import ENDED
from engine.language import timestamps
from engine.language.durations import parse_duration
from engine.language.errors import SessionError, StorageError
from engine.run.active import utc_now
from engine.storage.port import Store

_ALL = 1_000_000


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
        return _delete(retention.House.of(settings, store), heads, dry_run=dry_run, as_json=as_json)


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
        ids = store.ended(before, limit=_ALL)
        heads = [head for session_id in ids if (head := store.head(session_id)) is not None]
        return _delete(retention.House.of(settings, store), heads, dry_run=dry_run, as_json=as_json)


def _delete(house: retention.House, heads: Sequence[Head], *, dry_run: bool, as_json: bool) -> int:
    if not dry_run:
        retention.at_once(retention.deletion(house, [head.session_id for head in heads]))
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
