"""`sessions show` and `export`. Looking claims nothing and changes nothing."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from bot.cli.lookup import also_in_workspace, find_session
from bot.faces.run import Behind
from bot.intents.agent_rows import FEEDBACK, feedback_in
from bot.terminal.console import Exit, Paint, Place, UsageError, clean, one_line, opened, print_json, writable
from bot.terminal.lists import head_json
from bot.terminal.show import View, conversation_lines, show_lines
from engine.decide.limits import standing
from engine.flow import Flow
from engine.journal.events import decode_event
from engine.journal.fold import derive_state
from engine.journal.history import inspection, transcript, tree
from engine.journal.records import Head
from engine.journal.state import State
from engine.language.codec import encode
from engine.language.errors import Corrupt, FlowError, MalformedJournal, StorageError
from engine.run.stored import stored_flow, utc_now
from engine.storage.private_files import durable_file
from engine.storage.store import Store


@dataclass(frozen=True)
class Look:
    """The parts of a session to show: the conversations of its agents and the journal too, as it was at event `at`, every
    pass, as JSON."""

    conversation: bool
    events: bool
    at: int | None
    whole: bool
    as_json: bool


@also_in_workspace
def show_session(place: Place, /, text: str, **options: Any) -> int:
    """Print one session; damaged records are said, and shown as far as they can be. Raises `UnknownSession`."""
    look = Look(**options)
    with opened(place.settings(), f"no session {text!r}") as store:
        head = find_session(store, text)
        try:
            return _show(store, head, place, look)
        except (Corrupt, MalformedJournal) as error:
            if look.as_json:
                print_json({**head_json(head, []), "problem": str(error)})
            else:
                print(
                    f"{head.session_id}  {clean(head.flow_name)}  on hold\n"
                    f"  Its records do not verify: {one_line(head.quarantined or str(error), 300)}\n"
                    "  It does not run. Restore the database from a backup, or start the flow again."
                )
            return Exit.STORE


def _show(store: Store, head: Head, place: Place, look: Look) -> int:
    journal = [decode_event(row) for row in store.sessions.journal(head.session_id)]
    if look.at is not None and not 1 <= look.at <= len(journal):
        raise UsageError(f"There is no event {look.at}; {head.session_id} has events 1 to {len(journal)}.")
    events = journal[: look.at]
    state = derive_state(events)
    flow, unread = _flow_then(store, head, state)
    feedback = feedback_in(store.outbox.of(head.session_id, FEEDBACK))
    if look.as_json:
        document = inspection(state, head)
        document["feedback"] = [to_builtins(said) for said in feedback]
        document["tree"] = tree(events, flow).to_json()
        if look.conversation:
            document["conversation"] = [turn.to_json() for turn in transcript(events)]
        if look.events:
            document["events"] = [event.to_wire() for event in events]
        print_json(document)
        return Exit.OK
    earlier = len(events) < len(journal)
    queue = store.locks.rows(state.lock.name) if state.lock is not None else []
    found = standing(queue, head.session_id)
    view = View(
        state.updated_at if earlier else utc_now(),
        Paint(sys.stdout),
        len(journal) if earlier else None,
        look.whole,
        None if earlier or found is None else Behind(*found),
        unread,
        () if earlier or state.ended or flow is None else tuple(flow.absent.values()),
        () if earlier else feedback,
    )
    for line in show_lines(state, head, flow, events, view, place.command):
        print(line)
    if look.conversation:
        turns = transcript(events)
        for line in (
            conversation_lines(turns, view.paint) if turns else ["", "No agent has written anything yet."]
        ):
            print(line)
    if look.events:
        print()
    for event in events if look.events else ():
        # An event on one line, what is particular to it as JSON.
        wire = event.to_wire()
        facts = {name: wire[name] for name in wire if name not in ("seq", "timestamp", "type", "path")}
        path, told = f" {event.path}" if event.path else "", one_line(encode(facts).decode(), 200)
        print(f"{event.seq:5} {event.timestamp} {event.type}{clean(path)} {told}")
    return Exit.OK


def _flow_then(store: Store, head: Head, state: State) -> tuple[Flow | None, str | None]:
    """The flow that a session had then, if it is still stored; or why it cannot be read."""
    try:
        flow, _ = stored_flow(store, head.flow_digest)
        with suppress(StorageError):
            flow, _ = stored_flow(store, state.flow_digest)
    except FlowError as error:
        return None, error.problems[0].message
    return flow, None


@also_in_workspace
def export_session(place: Place, text: str, output: Path | None) -> int:
    """Write the portable file, readable by its owner only. Raises `UnknownSession`, `Corrupt`, `UsageError`."""
    settings = place.settings()
    with opened(settings, f"no session {text!r}") as store:
        data = asyncio.run(_export(store, settings.home, find_session(store, text).session_id))
    if output is None:
        sys.stdout.buffer.write(data + b"\n")
        sys.stdout.flush()
        return Exit.OK
    with writable(output), durable_file(output) as file:
        file.write(data)
    print(
        f"Written to {output}. Continue it: {place.command('sessions', 'resume', '--snapshot', str(output))}"
    )
    return Exit.OK


async def _export(store: Store, home: Path, session_id: str) -> bytes:
    from engine.run.engine import Engine

    engine = Engine(store, policy=lambda *_: "read-only", runners={}, home=home)
    engine.writer.start()
    try:
        return await engine.export(session_id)
    finally:
        engine.writer.close()
