"""`inbox list`, `inbox retry` and `inbox drop`: dead letters, which are rows whose handler failed at each time."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bot.terminal.cli_context import Place, database_exists, opened, writing
from bot.terminal.exit_codes import Exit, UsageError
from bot.terminal.narration import ago
from bot.terminal.output import Paint, one_line, plural, print_json, table
from engine.journal.records import InboxRow
from engine.language.codec import Json, decode
from engine.run.active import utc_now
from engine.storage.port import Store


def list_letters(place: Place, *, as_json: bool) -> int:
    """Print the dead letters, oldest first."""
    settings, found = place.settings(), []
    if database_exists(settings):
        with opened(settings) as store:
            found = store.dead_letters()
    if as_json:
        print_json({"deadLetters": [_as_json(row) for row in found]})
        return Exit.OK
    if not found:
        print("Nothing was set aside.")
        return Exit.OK
    now, headers = utc_now(), ("ID", "KEY", "CAME", "TRIES", "ERROR")
    for line in table(headers, [_line(row, now) for row in found], Paint(sys.stdout)):
        print(line)
    return Exit.OK


def _line(row: InboxRow, now: str) -> tuple[str, ...]:
    why = decode(row.result or b"{}")
    error = one_line(f"{why.get('error')}: {why.get('message')}", 200)
    return (str(row.id), one_line(row.key), ago(row.received_at, now), str(why.get("tries")), error)


def _as_json(row: InboxRow) -> dict[str, Json]:
    return {
        "id": row.id,
        "key": row.key,
        "kind": row.kind,
        "threadKey": row.thread_key,
        "sessionId": row.session_id,
        "receivedAt": row.received_at,
        "payload": decode(row.payload),
        **decode(row.result or b"{}"),
    }


def retry(place: Place, ids: Sequence[str], *, every: bool, as_json: bool) -> int:
    """Open dead letters anew. Raises `UsageError`."""
    return _decide(place, ids, every=every, again=True, as_json=as_json)


def drop(place: Place, ids: Sequence[str], *, every: bool, as_json: bool) -> int:
    """Drop dead letters. Raises `UsageError`."""
    return _decide(place, ids, every=every, again=False, as_json=as_json)


def _decide(place: Place, ids: Sequence[str], *, every: bool, again: bool, as_json: bool) -> int:
    """Open dead letters anew, or drop them. Raises `UsageError` where one of the ids is none; nothing is changed then."""
    if bool(ids) == every:
        raise UsageError("Name what is meant, by id or key (sayso inbox list shows them), or say --all.")
    settings, done = place.settings(), []
    if database_exists(settings):
        with writing(settings) as store:
            meant = _meant(store, ids)
            done = [row for row in meant if store.decide_letter(row.key, again=again)]
            served = "bot" in store.serving()
    elif ids:
        raise UsageError(f"There is no dead letter {ids[0]}.")
    if as_json:
        print_json({"retried" if again else "dropped": [row.key for row in done]})
    elif not done:
        print("Nothing was set aside.")
    elif again:
        when = "The bot takes" if served else "No bot runs right now. The next one (sayso start) takes"
        print(f"{when} {plural(len(done), 'row')} up again.")
    else:
        print(f"{plural(len(done), 'row')} dropped.")
    return Exit.OK


def _meant(store: Store, ids: Sequence[str]) -> list[InboxRow]:
    letters = store.dead_letters()
    names = {name: row for row in letters for name in (str(row.id), row.key)}
    for name in ids:
        if name not in names:
            raise UsageError(f"There is no dead letter {name}. `sayso inbox list` shows which there are.")
    return list({row.id: row for row in (names[name] for name in ids)}.values()) if ids else letters
