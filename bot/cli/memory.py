"""`memory list`, `edit` and `forget`: what agents have noted for later runs."""

from __future__ import annotations

from functools import partial

from bot.cli.lookup import actor_for
from bot.terminal.console import (
    Exit,
    Place,
    UsageError,
    clean,
    moment,
    one_line,
    print_json,
    print_list,
    read_there,
    writing,
)
from bot.terminal.follow import local_gate
from engine.decide.agents import memory
from engine.journal.records import KeptRow
from engine.language.codec import Json, clean_text
from engine.language.errors import NotAllowed
from engine.run.memory import stored_note
from engine.run.stored import utc_now


def list_notes(place: Place, *, as_json: bool) -> int:
    """Print the notes that hold, oldest first."""
    noted = read_there(place.settings(), lambda store: store.kept.rows(memory.NOTE))
    rows, cells = [row for row in noted if memory.current(row, utc_now())], []
    for row in rows:
        told = memory.note(row)
        people = ", ".join(str(actor.get("name") or actor.get("id")) for actor in told["by"]) or "nobody"
        text = one_line(str(told["text"]), 200)
        cells.append((row.kept_id, clean(row.scope), clean(people), moment(row.expires_at), text))
    nothing = "" if rows else f"There are no notes.{place.elsewhere('memory', 'list')}"
    headers = ("NOTE", "FOR", "BY", "UNTIL", "TEXT")
    return print_list("notes", map(_as_json, rows), headers, cells, nothing, as_json=as_json)


def _as_json(row: KeptRow) -> dict[str, Json]:
    told = memory.note(row)
    return {"noteId": row.kept_id, "scope": row.scope, "until": row.expires_at, **told}


def edit_note(place: Place, note_id: str, text: str, as_name: str | None, *, as_json: bool) -> int:
    """Change the text of a note. Raises `UnknownNote`, `TooLong`, `NotAllowed`."""
    text = clean_text(text)[0].strip()
    if not text:
        raise UsageError("A note cannot be empty. To delete it, use `sayso memory forget`.")
    return _change(place, note_id, as_name, text=text, as_json=as_json)


def _change(place: Place, note_id: str, as_name: str | None, *, text: str, as_json: bool) -> int:
    """Give a note another text, or none: who deleted it stays. Raises `UnknownNote`, `NotAllowed`."""
    settings = place.settings()
    with writing(settings, f"no note {note_id!r}") as store:
        row, actor = stored_note(store, note_id, utc_now()), actor_for(settings, as_name)
        problem = memory.refusal(row, actor, local_gate(settings)) if text else None
        if problem is not None:
            raise NotAllowed(problem)
        after = memory.changed(row, text, actor.record(), utc_now())
        store.consume([], utc_now(), [after])
    if as_json:
        print_json(_as_json(after))
    else:
        print(f"{row.kept_id} was deleted." if not text else f"{row.kept_id}: {clean(text)}")
    return Exit.OK


forget_note = partial(_change, text="")
