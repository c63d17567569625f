"""`graph`: a flow as Mermaid and as SVG, and where a session of it stands."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bot.cli.lookup import find_flow, find_session, need_database
from bot.terminal.cli_context import Place, opened
from bot.terminal.exit_codes import Exit, UsageError
from engine.flow import Flow
from engine.flow.docs.diagram import Marks, mermaid
from engine.flow.docs.svg import svg
from engine.flow.load import flow_from_body
from engine.journal.events import decode_event
from engine.journal.fold import derive_state
from engine.journal.history import marks, tree


class _Drawn(NamedTuple):
    """What is drawn: a flow, what became of its nodes, and the title where it is not the flow's name."""

    flow: Flow
    marks: Marks
    title: str | None


def graph_command(place: Place, name: str | None, session: str | None, file: Path | None) -> int:
    """Print the Mermaid text, or write the SVG. A session is drawn with its own text of the flow.

    Raises `UsageError`, `UnknownFlow`, `FlowError`, `UnknownSession`, `Corrupt`.
    """
    if session is None:
        if name is None:
            raise UsageError("Say which flow: sayso graph FLOW, or sayso graph --session ID.")
        drawn = _Drawn(find_flow(place.settings(), name), {}, None)
    else:
        drawn = _standing(place, session)
    if file is None:
        print(mermaid(drawn.flow, drawn.marks), end="")
        return Exit.OK
    try:
        file.write_text(svg(*drawn))
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from error
    print(f"Written to {file}.")
    return Exit.OK


def _standing(place: Place, session: str) -> _Drawn:
    settings = place.settings()
    need_database(settings, f"no session {session!r}")
    with opened(settings) as store:
        head = find_session(store, session)
        events = [decode_event(row) for row in store.journal(head.session_id)]
        flow = flow_from_body(store.flow(head.flow_digest))
    found = marks(tree(events, flow))
    state = derive_state(events)
    if state.phase == "held":
        found |= {key: "held" for key, status in found.items() if status == "waiting"}
    return _Drawn(flow, found, f"{flow.name}: {head.session_id}, {state.status}")
