"""`store encrypt`, `store rotate`, `sessions erase`: what is stored encrypted, under which key, and for how long."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bot.cli.lookup import find_session, need_database
from bot.cli.store import refuse_others
from bot.compose.retention import Retention
from bot.terminal.console import (
    Exit,
    Place,
    UsageError,
    clean,
    database_file,
    opened,
    plural,
    print_json,
    writing,
)
from engine.journal.records import Head
from engine.language import timestamps
from engine.language.errors import SessionError, SnapshotRefused
from engine.run.snapshot_files import SnapshotFiles
from engine.storage.port import Store
from engine.storage.store import DatabaseStore

if TYPE_CHECKING:
    from bot.config.settings import Settings


def encrypt_store(place: Place) -> int:
    """Encrypt what a store holds in plain, and leave nothing of it in its files. Raises `UsageError`, `StorageError`."""
    from engine.storage.rekeying import encrypt_all, plain, vault_of

    settings = place.settings()
    need_database(settings, "nothing to encrypt")
    with opened(settings) as store:
        database = _database(store)
        refuse_others(store)
        key_id = vault_of(database).wrapping.first
        rows = sessions = damaged = 0
        for done in encrypt_all(database):
            rows, sessions, damaged = done.rows, done.sessions, done.damaged
        left = plain(database)
        _rewrite_files(settings, database)
        if file := database_file(settings):
            store.compact()
        print(f"{plural(sessions, 'session')} and {plural(rows, 'other row')} encrypted, under key {key_id}.")
    if left:
        print(
            f"{plural(left, 'row')} stay as they are: {damaged} records do not verify, and what does not is never signed anew. "
            "`sayso doctor` names them; delete their sessions, or restore them and encrypt again."
        )
    if file is None:
        print(
            "The server keeps old rows until VACUUM FULL, and as long as its own backups and logs are kept."
        )
    for copy in _copies(settings):
        print(f"{copy} is an older copy, and not encrypted: delete it once you need it no more.")
    return Exit.STORE if left else Exit.OK


def _rewrite_files(settings: Settings, store: DatabaseStore) -> None:
    """Write the snapshot files anew under the first key, while nobody else does."""
    from engine.storage.envelopes import anew
    from engine.storage.rekeying import vault_of

    if settings.snapshot_dir is None:
        return
    files = SnapshotFiles(settings.snapshot_dir)
    wrapping = vault_of(store).wrapping
    for session_id in files.sessions():
        try:
            files.write(session_id, anew(wrapping, store._sealer, files.path(session_id).read_bytes()))
        except (OSError, SnapshotRefused) as error:
            print(f"sayso: {clean(str(files.path(session_id)))} stays as it is: {error}", file=sys.stderr)


def _copies(settings: Settings) -> list[Path]:
    """Copies of the database that earlier upgrades and restores have left beside it."""
    file = database_file(settings)
    found = (
        []
        if file is None
        else [*file.parent.glob(f"{file.name}.*.bak"), *file.parent.glob(f"{file.name}.*.replaced")]
    )
    return sorted(found)


def rotate_keys(place: Place) -> int:
    """Wrap all data keys with the first key. Raises `UsageError`, `StorageError`."""
    from engine.storage.rekeying import keys_in_use, rotate, vault_of

    settings = place.settings()
    need_database(settings, "nothing to wrap anew")
    with opened(settings) as store:
        database = _database(store)
        first, count = vault_of(database).wrapping.first, 0
        for done in rotate(database):
            count = done
        waiting = settings.snapshot_dir is not None and bool(store.serving())
        if not waiting:
            _rewrite_files(settings, database)
        others = {key_id: used for key_id, used in keys_in_use(database).items() if key_id != first}
    print(f"{plural(count, 'data key')} wrapped anew: all of them are under key {first}.")
    if others:
        told = ", ".join(f"{used} under {key_id}" for key_id, used in others.items())
        print(f"But a process with other settings has just made more: {told}. Restart it, and rotate again.")
        return Exit.FAILED
    if waiting:
        print("Files in SAYSO_SNAPSHOT_DIR are still under the old key: rotate once more while no bot runs.")
    print("Restart what runs with other keys first; then take those out of SAYSO_ENCRYPTION_KEYS.")
    return Exit.OK


def erase(
    place: Place, texts: Sequence[str] | None, person: str | None, *, dry_run: bool, as_json: bool
) -> int:
    """Erase what sessions held, or all that names a person. Raises `UsageError`, `SessionError`, `StorageError`."""
    from engine.storage.rekeying import (
        erase_elsewhere,
        erase_session,
        is_erased,
        sessions_naming,
    )

    if bool(texts) == bool(person):
        raise UsageError("Name sessions, or somebody with --person.")
    settings = place.settings()
    need_database(settings, "nothing to erase")
    with writing(settings) as store:
        database, kept = _database(store), Retention.of(settings, store)
        if person is None:
            heads = list(
                {
                    head.session_id: head for head in (find_session(store, text) for text in texts or ())
                }.values()
            )
        else:
            heads = sessions_naming(database, person)
        heads = [head for head in heads if not is_erased(database, head.session_id)]
        refused = _refused(database, heads)
        if refused and person is None:
            raise SessionError(f"{next(iter(refused.values()))} Nothing was erased.")
        going = [head for head in heads if head.session_id not in refused]
        elsewhere = 0
        if not dry_run:
            for head in going:
                kept.remove_files(head.session_id)
                erase_session(database, head.session_id)
            elsewhere = erase_elsewhere(database, person) if person else 0
    _tell_erased(going, refused, elsewhere, dry_run=dry_run, as_json=as_json)
    return Exit.REFUSED if refused else Exit.OK


def _refused(store: DatabaseStore, heads: Sequence[Head]) -> dict[str, str]:
    from engine.storage.rekeying import refuse_to_erase

    found = {}
    for head in heads:
        try:
            refuse_to_erase(store, head)
        except SessionError as error:
            found[head.session_id] = str(error)
    return found


def _tell_erased(
    heads: Sequence[Head], refused: dict[str, str], elsewhere: int, *, dry_run: bool, as_json: bool
) -> None:
    if as_json:
        ids = [head.session_id for head in heads]
        print_json({"erased": ids, "refused": refused, "otherRows": elsewhere, "dryRun": dry_run})
        return
    for head in heads if dry_run else ():
        print(
            f"{clean(head.session_id)}  {clean(head.flow_name)}, {head.status}, {timestamps.told(head.created_at)}"
        )
    for why in refused.values():
        print(f"Not erased: {clean(why)}")
    count = plural(len(heads), "session")
    if not heads and not elsewhere:
        print("There is nothing to erase.")
        return
    if dry_run:
        print(f"{count} would be erased; nothing was.")
        return
    more = f", and {plural(elsewhere, 'other row')}" if elsewhere else ""
    print(f"{count} erased with all files{more}. Their chains still verify. Backups hold what they held.")


def _database(store: Store) -> DatabaseStore:
    assert isinstance(store, DatabaseStore), "every URL names a database"
    return store
