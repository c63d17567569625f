"""`sessions delete`: sessions go with their files; or what they held is erased, and their chains stay verifiable."""

from __future__ import annotations

from collections.abc import Sequence

from bot.cli.lookup import also_in_workspace, find_session
from bot.compose import retention
from bot.terminal.console import (
    Exit,
    Place,
    UsageError,
    clean,
    database_exists,
    opened,
    plural,
    print_json,
    writing,
)
from bot.terminal.narration import standing
from engine.journal.phases import ENDED, in_words
from engine.journal.records import Head
from engine.language import timestamps
from engine.language.errors import SessionError
from engine.language.timestamps import parse_duration
from engine.run.stored import utc_now
from engine.storage.store import Store


@also_in_workspace
def delete_sessions(
    place: Place,
    texts: Sequence[str] | None,
    older_than: str | None,
    person: str | None,
    *,
    erase: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Delete or erase sessions that have ended. Raises `UsageError`, `SessionError`, `StorageError`."""
    if [bool(texts), older_than is not None, person is not None].count(True) != 1:
        raise UsageError("Name sessions, or give --older-than, or --person.")
    if person is not None and not any(map(str.isalnum, person)):
        raise UsageError(f"--person takes a Slack id or an address, not {person!r}.")
    seconds = None
    if older_than is not None:
        try:
            seconds = parse_duration(older_than)
        except ValueError as error:
            raise UsageError(
                f"--older-than takes a duration such as 30d or 12h, not {older_than!r}."
            ) from error
    settings = place.settings()
    missing = f"no session {texts[0]!r}" if texts else ""
    if not texts and not database_exists(settings):
        # No `UnknownSession`: the local workspace is looked in only for a session that somebody names.
        raise UsageError(f"There is nothing to delete: {settings.database_url} does not exist yet.")
    if erase or person is not None:
        with writing(settings, missing) as store:
            kept = retention.Retention.of(settings, store)
            return _erase(store, kept, texts, seconds, person, dry_run=dry_run, as_json=as_json)
    with opened(settings, missing) as store:
        heads = _named(store, texts, seconds)
        for head in heads:
            if head.status not in ENDED and not head.quarantined:
                abort = place.command("sessions", "abort", head.session_id)
                raise SessionError(
                    f"Session {head.session_id} is {in_words(standing(head))}; nothing was deleted. End it first: {abort}"
                )
        ids = [head.session_id for head in heads]
        if not dry_run:
            retention.at_once(retention.forgotten(retention.Retention.of(settings, store), ids))
    if as_json:
        print_json({"deleted": ids, "dryRun": dry_run})
        return Exit.OK
    _list(heads if dry_run else ())
    count = plural(len(heads), "session")
    print(f"{count} would be deleted; nothing was." if dry_run else f"{count} deleted, with all files.")
    return Exit.OK


def _named(store: Store, texts: Sequence[str] | None, seconds: float | None) -> list[Head]:
    if seconds is None:
        found = [find_session(store, text) for text in texts or ()]
        return list({head.session_id: head for head in found}.values())
    ids = store.sessions.ended(timestamps.after(utc_now(), -seconds), limit=None)
    return [head for session_id in ids if (head := store.sessions.head(session_id)) is not None]


def _erase(
    store: Store,
    kept: retention.Retention,
    texts: Sequence[str] | None,
    seconds: float | None,
    person: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Overwrite data keys. Sessions that somebody names are erased all or none; of a person, those that can be."""
    from engine.storage.erasing import (
        erase_elsewhere,
        erase_session,
        is_erased,
        refuse_to_erase,
        sessions_naming,
    )

    heads = _named(store, texts, seconds) if person is None else sessions_naming(store, person)
    going, refused = [], dict[str, str]()
    for head in heads:
        if is_erased(store, head.session_id):
            continue
        try:
            refuse_to_erase(store, head)
        except SessionError as error:
            refused[head.session_id] = str(error)
        else:
            going.append(head)
    if refused and person is None:
        raise SessionError(f"{next(iter(refused.values()))} Nothing was erased.")
    elsewhere = 0
    if not dry_run:
        for head in going:
            kept.remove_files(head.session_id)
            erase_session(store, head.session_id)
        elsewhere = erase_elsewhere(store, person) if person else 0
    code = Exit.REFUSED if refused else Exit.OK
    if as_json:
        ids = [head.session_id for head in going]
        print_json({"erased": ids, "refused": refused, "otherRows": elsewhere, "dryRun": dry_run})
        return code
    _list(going if dry_run else ())
    for why in refused.values():
        print(f"Not erased: {clean(why)}")
    count = plural(len(going), "session")
    more = f", and {plural(elsewhere, 'other row')}" if elsewhere else ""
    if not going and not elsewhere:
        print("There is nothing to erase.")
    elif dry_run:
        print(f"{count} would be erased; nothing was.")
    else:
        print(
            f"{count} erased with all files{more}. The remaining records still verify. Backups are unchanged."
        )
    return code


def _list(heads: Sequence[Head]) -> None:
    for head in heads:
        when = f"ended {timestamps.told(head.ended_at)}" if head.ended_at else "on hold"
        print(f"{clean(head.session_id)}  {clean(head.flow_name)}, {when}")
