"""What must be true at the end of a run of sessions that were started by a form or by a reaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.simulation.modals import Sent
from tests.simulation.way_flows import COMMANDS, REACTIONS, SHORTCUTS

if TYPE_CHECKING:
    from tests.simulation.checks import Session
    from tests.simulation.world import World

FORMS = (*COMMANDS, *SHORTCUTS)


def started(world: World, sessions: list[Session]) -> Iterator[str]:
    """Each form that was taken started one session, none started two, and no session came from nowhere."""
    times = Counter[str]()
    for session in sessions:
        if session.head.flow_name in FORMS:
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
    for ts in world.people.errands.reacted:
        yield from _reacted(world, ts, [s for s in sessions if _root(s) == ts])


def _reacted(world: World, ts: str, sessions: list[Session]) -> Iterator[str]:
    """A reaction starts its flow in the thread of its message, once for each person at the most, and never beside itself."""
    people = world.people.errands.reacted[ts]
    if not 1 <= len(sessions) <= len(people):
        yield f"{len(people)} people reacted to {ts}, and it has {len(sessions)} sessions"
    by = [(session.state.actor or {}).get("id") for session in sessions]
    if not set(by) <= people or len(set(by)) < len(by):
        yield f"{people} reacted to {ts}, and its sessions are those of {by}"
    for session in sessions:
        if session.state.inputs["what"] != world.people.errands.texts[ts]:
            yield f"{session.head.session_id} is about {session.state.inputs['what']!r}"
    rows = sorted((s.events[0].timestamp, s.events[-1].timestamp) for s in sessions)
    for (_, end), (begin, _) in pairwise(rows):
        if begin < end and not world.jumped:
            yield f"{ts} had two sessions at once"


def _root(session: Session) -> str:
    return str(session.head.thread_key).rsplit(":", 1)[1]


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
    if _root(session) != sent.about:
        yield f"{session.head.session_id} was started from {sent.about}, and lives in {session.head.thread_key}"
    if session.state.inputs["what"] != world.people.errands.texts[sent.about]:
        yield f"{session.head.session_id} is about {session.state.inputs['what']!r}"
    if "link" in session.state.inputs and sent.about not in session.state.inputs["link"]:
        yield f"{session.head.session_id} has the link {session.state.inputs['link']}"


def inputs(world: World, session: Session) -> dict[str, str]:
    """What people filled in to start a session, for the model: `inputs.<name>`."""
    if session.head.flow_name in REACTIONS:
        return {"inputs.what": world.people.errands.texts[_root(session)]}
    sent = _form_of(world, session) if session.head.flow_name in FORMS else None
    if sent is None:
        return {}
    found = {f"inputs.{name}": _text(value) for name, value in sent.meant.items()}
    return {**found, "inputs.what": world.people.errands.texts[sent.about]} if sent.about else found
