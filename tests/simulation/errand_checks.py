"""What must be true at the end of a run of sessions that were started by a form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.simulation.modals import Sent
from tests.simulation.way_flows import SHORTCUTS, WAY_SAMPLES

if TYPE_CHECKING:
    from tests.simulation.checks import Session
    from tests.simulation.world import World


def started(world: World, sessions: list[Session]) -> Iterator[str]:
    """Each form that was taken started one session, none started two, and no session came from nowhere."""
    times = Counter[str]()
    for session in sessions:
        if session.head.flow_name in WAY_SAMPLES:
            sent = _form_of(world, session)
            if sent is None:
                yield f"nobody asked for {session.head.session_id} with {session.state.inputs}"
                continue
            times[sent.view] += 1
            yield from _from_its_message(world, session, sent)
    for sent in world.people.errands.starts():
        if sent.taken and not times[sent.view]:
            yield f"{sent.view} with {sent.meant} was taken, and started nothing"
    yield from (f"{view} started {number} sessions" for view, number in times.items() if number > 1)


def _form_of(world: World, session: Session) -> Sent | None:
    """The form in which somebody filled in what a session began with: no two have the same."""
    given = {name: _text(value) for name, value in session.state.inputs.items()}
    for sent in world.people.errands.starts():
        meant = {name: _text(value) for name, value in sent.meant.items()}
        if sent.flow == session.head.flow_name and all(given.get(name, "") == meant[name] for name in meant):
            return sent
    return None


def _text(value: Any) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _from_its_message(world: World, session: Session, sent: Sent) -> Iterator[str]:
    """What is started from a message lives in its thread, and has its text."""
    if session.head.flow_name not in SHORTCUTS:
        return
    if session.head.thread_key.rsplit(":", 1)[1] != sent.about:
        yield f"{session.head.session_id} was started from {sent.about}, and lives in {session.head.thread_key}"
    if session.state.inputs["what"] != world.people.errands.texts[sent.about]:
        yield f"{session.head.session_id} is about {session.state.inputs['what']!r}"
    if "link" in session.state.inputs and sent.about not in session.state.inputs["link"]:
        yield f"{session.head.session_id} has the link {session.state.inputs['link']}"


def inputs(world: World, session: Session) -> dict[str, str]:
    """What people filled in to start a session, for the model: `inputs.<name>`."""
    sent = _form_of(world, session) if session.head.flow_name in WAY_SAMPLES else None
    if sent is None:
        return {}
    found = {f"inputs.{name}": _text(value) for name, value in sent.meant.items()}
    return {**found, "inputs.what": world.people.errands.texts[sent.about]} if sent.about else found
