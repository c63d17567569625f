"""`store release`, `backup` and `restore`: the store as a whole."""

from __future__ import annotations

import sys
from pathlib import Path

from bot.compose.suspension import may_repeat
from bot.config.settings import Settings
from bot.terminal.cli_context import Place, database_exists, database_file, opened
from bot.terminal.exit_codes import Exit, UsageError
from bot.terminal.output import clean
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
