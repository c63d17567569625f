"""What must hold of a crowd of commands once every session has ended: what each said agrees with the journal, and every
effect was made as often as the journal says."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator

from engine.journal.events import Event
from engine.journal.fold import derive_state
from engine.journal.phases import ENDED
from tests.cli.crowd import CARRIED_OUT, REFUSED, Crowd, Done

_NEVER = ("Traceback", "nternal", "nexpected", "ERROR", "CRITICAL")
"""Words of errors that nobody foresaw."""


def problems(crowd: Crowd) -> list[str]:
    """Everything that is not as it must be, once every session has ended."""
    journals = crowd.journals()
    found = [problem for done in crowd.done for problem in _of_command(done, journals)]
    found += _counts(crowd.done, journals)
    lines = Counter((crowd.folder / "log").read_text().split())
    for session_id, journal in journals.items():
        found += [f"{session_id}: {problem}" for problem in _of_session(session_id, journal, lines)]
    return found


def _of_command(done: Done, journals: dict[str, list[Event]]) -> Iterator[str]:
    told = done.out + done.err
    yield from (f"{word!r} was told: {done}" for word in _NEVER if word in told)
    allowed = {0} if done.kind == "look" else {*CARRIED_OUT, *REFUSED}
    if done.fate:
        allowed |= {-signal.SIGKILL, -signal.SIGTERM}
    if done.code not in allowed:
        yield f"an exit code that nothing explains: {done}"
    if "--json" in done.arguments and done.code in CARRIED_OUT:
        try:
            json.loads(done.out)
        except ValueError:
            yield f"no JSON: {done}"
    if done.kept and not (done.off and done.code in (3, -signal.SIGKILL, -signal.SIGTERM)):
        yield f"kept for later: {done}"
    if done.token and done.kind in ("said", "held"):
        yield from _agrees(done, journals[done.session_id])


def _agrees(done: Done, journal: list[Event]) -> Iterator[str]:
    """Whether the journal says of a command what the command said."""
    marks = [event for event in journal if done.token in _says(event)]
    if any(event.type != "flow:resumed" for event in marks):
        marks = [event for event in marks if event.type != "flow:resumed"]  # which repeats what resumed it
    times = len(marks)
    if times > 1:
        yield f"{times} times in the journal: {done}"
    # A session that ends while it is being held has ended; what was kept may be refused later.
    over = done.kind == "held" and done.code in (0, 1)
    if done.code in CARRIED_OUT and not times and not over and not done.kept:
        yield f"said to be done, and is not in the journal: {done}"
    if done.code in REFUSED and times:
        yield f"refused, and is in the journal: {done}"
    for event in marks:
        actor = getattr(event, "actor", None)
        if actor and actor.get("id") != f"local:{done.who}":
            yield f"in the name of {actor}: {done}"


def _says(event: Event) -> tuple[object, ...]:
    """What a person said that is in an event."""
    match event.type:
        case "prompt:answered":
            return (event.answer.get("text"),)
        case "prompt:edited":
            return (str(event.values["count"]),)
        case "prompt:handed":
            return (event.to.removeprefix("local:"),)
        case "session:message" | "flow:resumed":
            return (event.message,)
        case "prompt:voted" | "session:abort" | "flow:paused":
            return (event.reason,)
    return ()


def _counts(commands: list[Done], journals: dict[str, list[Event]]) -> Iterator[str]:
    """Of what names no one: not fewer than were told, not more than could be."""
    for kind, event_type in (("migrate", "flow:migrated"),):
        if any(done.kind == "fork" for done in commands):
            return  # it copies what is counted
        mine = [done for done in commands if done.kind == kind]
        sure = sum(done.code in CARRIED_OUT and not done.kept for done in mine)
        most = sum(done.code not in REFUSED for done in mine)
        there = sum(event.type == event_type for journal in journals.values() for event in journal)
        if not sure <= there <= most:
            yield f"{there} times {event_type}, and {sure} to {most} commands: " + "\n".join(map(str, mine))


def _of_session(session_id: str, journal: list[Event], lines: Counter[str]) -> Iterator[str]:
    state = derive_state(journal)
    if state.status not in ENDED:
        yield f"it is {state.status}"
    answers = Counter(event.prompt_id for event in journal if event.type == "prompt:answered")
    if any(count > 1 for count in answers.values()):
        yield f"a question was answered twice: {answers}"
    started = Counter(event.path for event in journal if event.type in _STARTS and _counts_runs(event))
    ended = Counter(event.path for event in journal if event.type in _ENDS)
    cut = {event.path for event in journal if event.type == "node:interrupted"}
    yield from (f"{path} completed {times} times" for path, times in ended.items() if times > 1)
    copied = state.parent_session_id is not None
    for path in started:
        count = lines[f"{session_id}:{path}"]
        exactly = path not in cut and not copied
        if count > started[path] or (exactly and count < started[path]):
            yield f"{path} had its effect {count} times, and was started {started[path]} times"


def _counts_runs(event: Event) -> bool:
    return getattr(event, "node_type", None) == "shell"


_STARTS = ("node:started", "container:childStarted")
_ENDS = ("node:completed", "container:childCompleted")
