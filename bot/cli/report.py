"""`sessions report`: a session as one page to print: what was asked and decided, what ran, what it returned."""

from __future__ import annotations

from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any

from bot.cli.audit import seal_file, write_sealed
from bot.cli.lookup import also_in_workspace, find_session, need_database
from bot.cli.store import verdict_of
from bot.rendering.text import plain
from bot.terminal.console import Exit, Place, clean, opened
from engine.journal.audit import AuditRecord, audit
from engine.journal.events import decode_event
from engine.journal.fold import derive_state
from engine.journal.records import Head
from engine.language.codec import Json, encode
from engine.language.template import shown
from engine.messages.money import dollars
from engine.storage.store import Store

_MOST = 4_000
"""Characters of an input or a result that are printed; the digest is of all of it."""
_ENDS = ("node:completed", "container:childCompleted", "node:error", "node:retried", "node:interrupted")
_SAID = ("session:message", "agent:message")


@also_in_workspace
def report_session(place: Place, text: str, output: Path | None) -> int:
    """Write the page and its seal. Raises `UnknownSession`, `Corrupt`, `UsageError`."""
    settings = place.settings()
    need_database(settings, f"no session {text!r}")
    with opened(settings) as store:
        head = find_session(store, text)
        target = output or Path(f"{head.session_id}.html")
        write_sealed(store, target, "report", [_page(store, head).encode()])
    print(f"Written to {clean(str(target))}; its seal is {clean(str(seal_file(target)))}.")
    return Exit.OK


def _page(store: Store, head: Head) -> str:
    from jinja2 import Environment, StrictUndefined

    events = [decode_event(row) for row in store.journal(head.session_id)]
    records = list(audit(events, content=True))
    state = derive_state(events)
    page = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_visible, trim_blocks=True, lstrip_blocks=True
    )
    page.filters |= {"moment": _moment, "text": _text, "who": _who, "words": _words}
    return page.from_string(resources.files(__package__).joinpath("report.html").read_text("utf-8")).render(
        head=head,
        state=state,
        started=records[0],
        cost=dollars(Decimal(state.spent.cost)) if state.spent.turns else None,
        verdict=verdict_of(store, head),
        questions=_questions(records),
        steps=[record for record in records if record.node_type or record.action in _ENDS],
        said=[record for record in records if record.action in _SAID],
        other=[
            record
            for record in records
            if record.actor_id and not record.prompt_id and record.action not in _SAID
        ],
    )


def _visible(value: Any) -> Any:
    """Whatever is printed, without characters that hide or reorder others."""
    return shown(value) if type(value) is str else value


def _questions(records: list[AuditRecord]) -> list[dict[str, Any]]:
    """Each question with what became of it, in the order in which they were asked."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        if record.action == "prompt:requested":
            found[record.prompt_id or ""] = {"asked": record, "then": []}
        elif record.prompt_id in found:
            found[record.prompt_id]["then"].append(record)
    return list(found.values())


def _moment(text: str | None) -> str:
    return "" if text is None else f"{text[:10]} {text[11:19]} UTC"


def _text(value: Json) -> str:
    """A value as it is printed: characters that hide or reorder others spelled out, cut at `_MOST`."""
    text = value if isinstance(value, str) else encode(value).decode()
    return shown(text if len(text) <= _MOST else f"{text[:_MOST]}… ({len(text):,} characters)")


def _words(markup: str) -> str:
    """What a flow asks, without Slack's markup."""
    return _text(plain(markup))


def _who(record: AuditRecord) -> str:
    """A person as the page names them: the name is what Slack said then, the id is who it was."""
    named = [part for part in (record.actor_name, record.actor_email) if part]
    who = f"{', '.join(named)} ({record.actor_id})" if named else record.actor_id or "sayso"
    if record.in_place_of:
        who += f", in place of {record.in_place_of}"
    return shown(f"{who}, played at the terminal" if record.simulated else who)
