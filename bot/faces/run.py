"""The face of a run: its card, as values. Pure.

It shows every node with its status, the people the session waits for, and its end. Times of open steps are points in
time ("since 14:02"), not durations: a card is only edited on events, and a duration would be wrong a minute later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from msgspec import Struct

from bot.faces.end import failed_path
from bot.faces.marks import EMOJI, LISTENING, mark_of
from bot.faces.places import WITHOUT_EFFECT, asks_for, latest_visits, place_of
from bot.faces.steps import Waits, awaited, open_prompts, progress, steps_at
from bot.faces.words import Code, Ids, Link, People, Said, Step, When, Words, joined, one_line
from engine.decide import limits
from engine.decide.outages import waited_out
from engine.flow import Flow
from engine.journal.phases import in_words
from engine.journal.queries import agent_of, ended_at, is_rejected, is_rejection, verdict_and_reason
from engine.journal.state import State
from engine.language import timestamps
from engine.language.codec import Json, encode
from engine.language.counting import elapsed, ordinal, plural
from engine.language.credentials import without_credentials
from engine.nodes.types.spec import Meter

_WHOLE = 40
"""Up to so many nodes each has its line."""
_AHEAD, _NEXT = 8, 1
_BEHIND = 20
_INPUTS = 12

_COUNTED = {"completed": "done"} | {
    word: word for word in ("rejected", "failed", "skipped", "unknown", "not run")
}
_WELL = frozenset({"completed", "skipped"})
_UNREACHABLE = {
    "is_archived": "the channel was archived",
    "not_in_channel": "I was removed from the channel",
    "channel_not_found": "I can no longer see the channel",
    "is_inactive": "the channel is inactive",
    "restricted_action": "I am not allowed to post there",
    "restricted_action_read_only_channel": "the channel is read-only",
    "restricted_action_thread_only_channel": "the channel only allows replies in threads",
    "restricted_action_non_threadable_channel": "the channel does not allow replies",
    "thread_not_found": "the first message of the thread was deleted",
    "missing_scope": "the app lacks a permission (see `sayso doctor`)",
    "msg_too_long": "the question is too long for Slack",
    "not_shown": "Slack has not let me show the question for a day",
}


class Behind(NamedTuple):
    """Position behind the first session in the queue for a lock: that session, and the own place, from 1. `link` leads
    to the thread of the first one, if it has one."""

    holder: str
    place: int
    link: str | None = None


class Facts(Struct, frozen=True, kw_only=True):
    """Facts about a run that are not its own: the known `ids`, the session ahead in the queue for its lock (`behind`),
    the progress of running nodes by path (`meters`), the resources that later steps lack here, and the address of the
    control `room`."""

    ids: Ids = None
    behind: Behind | None = None
    meters: Mapping[str, Meter] = {}
    lacks: Sequence[str] = ()
    room: str | None = None


class Run(Struct, frozen=True, kw_only=True):
    """The text and the controls of a run's card, as values."""

    session_id: str
    flow: str
    sign: str
    lead: Words
    """Its state in one short line: on a phone only that may be seen. At the end also the reason."""
    origin: Words
    inputs: str
    lacks: Sequence[str]
    limits: str
    """The limits that it continued past."""
    far: str
    steps: Sequence[Step]
    """Its nodes, in the flow's order; open questions for inputs come first. Many are grouped."""
    open: bool
    """True until the last event."""
    can_cancel: bool
    folded: bool
    """True beside a question: it has only few of its steps."""


def run(state: State, flow: Flow, facts: Facts, *, folded: bool = False) -> Run:
    """Return the face of a run as it is now; `folded` has few of its steps, for beside a question."""
    sign, lead = _standing(state, flow, facts)
    revision = re.sub(r"^([0-9a-f]{12})[0-9a-f]{28,52}\b", r"\1", state.flow_revision or "")
    origin: list[Words] = [
        ("Started by ", People([state.actor])),
        (When(state.created_at),),
        (Code(state.session_id),),
        ("flows at ", Code(revision)) if revision else (),
        (Link(f"{facts.room}sessions/{state.session_id}", "Open in the control room"),) if facts.room else (),
    ]
    return Run(
        session_id=state.session_id,
        flow=flow.name,
        sign=sign,
        lead=lead,
        origin=joined(origin, " · "),
        inputs=_inputs(state.inputs if state.inputs is not None else state.given),
        lacks=facts.lacks,
        limits=one_line(", ".join(map(limits.told, state.limits)), 300),
        far=f"{_over(state, flow, _WELL)} of {plural(len(flow.nodes), 'step')} done",
        steps=_steps(Waits.of(state, flow, facts.ids, facts.meters), whole=0 if folded else _WHOLE),
        open=not state.ended,
        can_cancel=state.phase in ("running", "waiting", "pausing", "held", "unreachable"),
        folded=folded,
    )


def _over(state: State, flow: Flow, outcomes: Set[str] = frozenset()) -> int:
    """The number of the flow's own nodes that have their outcome; with `outcomes` one of these."""
    begun = latest_visits(state)
    over = [begun[node.id] for node in flow.nodes if node.id in begun and begun[node.id] not in state.active]
    return sum(not outcomes or state.nodes[path].status in outcomes for path in over)


# --- the top -----------------------------------------------------------------------------------------------


def _standing(state: State, flow: Flow, facts: Facts) -> tuple[str, Words]:
    """The sign of a run's state, and the state in one short line: it must say everything on a phone."""
    reason: Words = (" · ", Said(state.pause_reason, 200)) if state.pause_reason else ()
    asks: Words = (f" · {plural(len(state.open_prompts), 'open question')}",) if state.open_prompts else ()
    if state.phase == "ended":
        return mark_of(state).emoji, _ended(state, flow)
    if state.phase == "finalizing":
        return EMOJI["running"], ("*Ending*",)
    if lock := lock_wait(state, facts.behind):
        if state.phase == "held":
            return EMOJI["paused"], ("*Paused*", *reason, " · ", *lock)
        return EMOJI["waiting"], ("*Waiting* for ", *lock)
    match state.phase:
        case "waiting":
            return _waiting(state, flow, facts)
        case "pausing":
            # The nodes that were told to leave and still run.
            left = [place_of(state, flow, path) for path in sorted(state.launched)]
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            when = (" · when ", Said(", ".join(left[:3])), f"{more} ends") if left else ()
            return EMOJI["paused"], ("*Pausing*", *when)
        case "held":
            return EMOJI["paused"], ("*Paused*", *reason, *asks)
        case "unreachable":
            why = Said(out_of_reach(state.pause_reason))
            return EMOJI["out of reach"], ("*Out of reach*: ", why, *asks)
    far = f"step {min(_over(state, flow) + 1, len(flow.nodes))} of {len(flow.nodes)}"
    now = [path for path in state.containers if "/" not in path]
    inside = progress(state, flow, now[0]) if len(now) == 1 else ()
    return EMOJI["running"], joined(("*Running*", far, inside), " · ")


def _waiting(state: State, flow: Flow, facts: Facts) -> tuple[str, Words]:
    if prompts := open_prompts(state):
        first, more = prompts[0], f"{len(prompts) - 1} more" if len(prompts) > 1 else ""
        whom = ("*Waiting* for ", awaited(first, state, facts.ids))
        return EMOJI["waiting"], joined((whom, Said(asks_for(state, first, flow)), more), " · ")
    timers = [timer for timer in state.timers.values() if timer.prompt_id is None]
    if not timers:
        return EMOJI["waiting"], ("*Waiting*",)
    next_one = min(timers, key=lambda timer: (timer.due_at, timer.purpose, timer.path or ""))
    due = When(next_one.due_at)
    if waited_out(state.nodes.get(next_one.path or "")):
        again = (When(next_one.due_at, "second"), " · write here to retry now")
        return EMOJI["waiting"], ("*Waiting* for the provider, next try at ", *again)
    if next_one.purpose == "followUp":
        return LISTENING, ("*Listening* for a reply here until ", due, " · `done` ends it")
    until = ", next try: " if next_one.purpose == "retry" else " until "
    return EMOJI["waiting"], (f"*Waiting*{until}", due)


def out_of_reach(reason: str | None) -> str:
    """Return why a thread takes no posts; Slack's error if it has no description."""
    return _UNREACHABLE.get(reason or "", one_line(reason or "Slack refuses", 80))


def _ended(state: State, flow: Flow) -> Words:
    """The end and the time that it took, the counts of what was done and what was not, and the reason."""
    word: Words = (f"*{in_words(state.outcome or 'failed').capitalize()}*",)
    reason = ""
    if is_rejection(state.error):
        said, why = verdict_and_reason(state.error)
        word, reason = ("*", Said(f"R{said[1:]}", 200), "*"), why[:1].upper() + why[1:]
    elif state.outcome == "failed" and state.error:
        reason = str(state.error.get("message") or state.error.get("type"))
        if failed := failed_path(state):
            reason = f"{place_of(state, flow, failed)}: {reason}"
    took = Said(elapsed(timestamps.seconds_between(state.created_at, state.updated_at)))
    end, after = ended_at(state), "in" if state.outcome == "complete" else "after"
    counted = Counter(
        "rejected" if is_rejected(run) else run.status for path, run in state.nodes.items() if "/" not in path
    )
    counted["unknown"] = sum(state.nodes[path].type not in WITHOUT_EFFECT for path in state.active)
    begun = latest_visits(state)
    counted["not run"] = sum(node.id not in begun for node in flow.nodes)
    parts = [
        (*word, f" {after} ", took, *((", at ", Code(end.node_id)) if end else ())),
        *((f"{counted[status]} {told}",) for status, told in _COUNTED.items() if counted[status]),
    ]
    return (*joined(parts, " · "), *(("\n", Said(reason, 200)) if reason else ()))


def _inputs(values: Mapping[str, Json]) -> str:
    """The inputs as plain text, one a line."""
    given = [(name, value) for name, value in values.items() if value != ""]
    texts = [(name, value if isinstance(value, str) else encode(value).decode()) for name, value in given]
    lines = [f"{name}: {one_line(without_credentials(text), 100)}" for name, text in texts[:_INPUTS]]
    more = len(given) - len(lines)
    return "\n".join(lines + ([f"… and {more} more"] if more else []))


# --- the nodes ---------------------------------------------------------------------------------------------


def _steps(waits: Waits, *, whole: int) -> list[Step]:
    """Return a line for each node, in the flow's order, with the content of containers below them; open questions for
    inputs come first. More than `whole` nodes are grouped."""
    state, flow = waits.state, waits.flow
    inputs = [
        waits.asks(prompt)
        for prompt in open_prompts(state)
        if prompt.path not in state.nodes and agent_of(state, prompt.path) is None
    ]
    begun = latest_visits(state)
    paths = [begun.get(node.id, node.id) for node in flow.nodes]
    known = set(paths)
    paths += [
        path for path in state.nodes if ("/" not in path.removeprefix("finally/")) and path not in known
    ]
    # Work outside of the shown containers: `finally`, for example.
    shown = {*paths, *state.containers}
    paths += [path for path in state.active if "/" in path and not _is_inside(path, shown)]
    if len(paths) <= whole:
        return [*inputs, *(line for path in paths for line in steps_at(waits, path))]
    return [*inputs, *_grouped(waits, paths, _AHEAD if whole else _NEXT)]


def _is_inside(path: str, containers: Set[str]) -> bool:
    """True if a node is inside one of these, at any depth."""
    while "/" in path:
        path = path.rpartition("/")[0]
        if path in containers or path.rpartition("[")[0] in containers:
            return True
    return False


def _grouped(waits: Waits, paths: Sequence[str], most_ahead: int) -> list[Step]:
    """Group many nodes: finished ones become a count; failed, running and next ones keep their lines."""
    state, lines = waits.state, list[Step]()
    behind = [path for path in paths if path in state.nodes and path not in state.active]
    broken = [
        path for path in behind if state.nodes[path].status == "failed" or is_rejected(state.nodes[path])
    ]
    counted = Counter(state.nodes[path].status for path in behind if path not in broken)
    if counted:
        (sign, first), *others = ((EMOJI[key], f"{n} {_COUNTED[key]}") for key, n in counted.items())
        lines.append(Step(sign, (first,), joined((f"{sign} {words}" for sign, words in others), " · ")))
    now = [path for path in paths if path in state.active]
    ahead = [path for path in paths if path not in state.nodes]
    for some, most, what in (
        (broken, _BEHIND, "failed"),
        (now, _BEHIND, "running"),
        (ahead, most_ahead, "not run" if state.ended else "to come"),
    ):
        lines += [line for path in some[:most] for line in steps_at(waits, path)]
        if len(some) > most:
            lines.append(Step("", (f"… {len(some) - most:,} more {what}",)))
    return lines


# --- locks -------------------------------------------------------------------------------------------------


def lock_wait(state: State, behind: Behind | None) -> Words:
    """Describe a wait for a lock: `lock deploy-x, held by session-1 · 2nd in the queue`; empty if it does not wait for
    a lock."""
    if state.lock is None or state.ended or not limits.pending(state):
        return ()
    name = ("lock ", Code(state.lock.name))
    if behind is None:
        return name
    where = (" (", Link(behind.link, "its thread"), ")") if behind.link else ()
    return (*name, ", held by ", Code(behind.holder), *where, f" · {ordinal(behind.place)} in the queue")


def holder_thread(error: dict[str, Json] | None) -> str | None:
    """The thread key of the session that held the lock when this error refused another one."""
    held_by = (error or {}).get("heldBy")
    return held_by.get("threadKey") if isinstance(held_by, dict) else None
