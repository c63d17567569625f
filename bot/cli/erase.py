"""`sessions erase`: what sessions held, and what names a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.cli.lookup import find_session, need_database
from bot.compose.retention import Retention
from bot.terminal.console import (
    Exit,
    Place,
    UsageError,
    clean,
    plural,
    print_json,
    writing,
)
from engine.journal.records import Head
from engine.language import timestamps
from engine.language.errors import SessionError
from engine.storage.store import Store

if TYPE_CHECKING:
    pass


def erase(
    place: Place, texts: Sequence[str] | None, person: str | None, *, dry_run: bool, as_json: bool
) -> int:
    """Erase what sessions held, or all that names a person. Raises `UsageError`, `SessionError`, `StorageError`."""
    from engine.storage.erasing import (
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
        kept = Retention.of(settings, store)
        if person is None:
            heads = list(
                {
                    head.session_id: head for head in (find_session(store, text) for text in texts or ())
                }.values()
            )
        else:
            heads = sessions_naming(store, person)
        heads = [head for head in heads if not is_erased(store, head.session_id)]
        refused = _refused(store, heads)
        if refused and person is None:
            raise SessionError(f"{next(iter(refused.values()))} Nothing was erased.")
        going = [head for head in heads if head.session_id not in refused]
        elsewhere = 0
        if not dry_run:
            for head in going:
                kept.remove_files(head.session_id)
                erase_session(store, head.session_id)
            elsewhere = erase_elsewhere(store, person) if person else 0
    _tell_erased(going, refused, elsewhere, dry_run=dry_run, as_json=as_json)
    return Exit.REFUSED if refused else Exit.OK


def _refused(store: Store, heads: Sequence[Head]) -> dict[str, str]:
    from engine.storage.erasing import refuse_to_erase

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
