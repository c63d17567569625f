"""One session as lines for people: where it is, its tree, what it waits for on whom, and its agents' conversations. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bot.faces.run import Behind, lock_wait
from bot.faces.tools import brief_input
from bot.intents.agent_rows import Feedback, agent_of
from bot.rendering.agents import HELPED
from bot.rendering.prompts import session_face
from bot.rendering.text import plain, waiting_on
from bot.terminal.console import Paint, ago, clean, moment, one_line
from bot.terminal.described import INTERRUPTED, MARKS
from bot.terminal.follower import open_prompts
from bot.terminal.narration import (
    STATUS_COLORS,
    answered_by,
    as_played,
    error_of,
    error_text,
    face_lines,
    started_by,
    told,
)
from engine.decide import limits
from engine.flow import Flow
from engine.journal.events import Event
from engine.journal.history import Entry, Turn, status_of, tree, unwrapped, worked
from engine.journal.phases import REJECTED
from engine.journal.queries import ended_at, is_rejection, is_retry, verdict
from engine.journal.records import Head
from engine.journal.state import State
from engine.language.actors import is_claimed
from engine.language.codec import Json, encode
from engine.language.counting import elapsed


@dataclass(frozen=True)
class View:
    """The way in which a session is looked at: `now` ends what is not over, `last` is the number of its last event when it is
    shown as it was earlier, `whole` shows every pass of a long loop. `behind` is whom it waits for in the queue for its lock,
    `feedback` what people said of its agents' answers, `unread` why its flow cannot be read here, `absent` which of
    its node types cannot be used here, and why."""

    now: str
    paint: Paint
    last: int | None = None
    whole: bool = False
    behind: Behind | None = None
    unread: str | None = None
    absent: Sequence[str] = ()
    feedback: Sequence[Feedback] = ()


def show_lines(
    state: State,
    head: Head,
    flow: Flow | None,
    events: Sequence[Event],
    view: View,
    command: Callable[..., str],
) -> Iterator[str]:
    """The lines; `events` are those that fold to `state`, `command` makes command lines that work in this place."""
    now, paint = view.now, view.paint
    yield f"{paint('bold', clean(state.flow_name))}  {state.session_id}"
    if view.last is not None:
        yield _fact("as it was", f"at event {state.seq} of {view.last}, {moment(state.updated_at)}")
    yield _fact("status", paint(STATUS_COLORS.get(state.status, "dim"), _status(state, head)))
    yield _fact(
        "started", f"{moment(state.created_at)} ({ago(state.created_at, now)}) by {started_by(state)}"
    )
    yield _fact("changed", f"{moment(state.updated_at)} ({ago(state.updated_at, now)})")
    if state.flow_revision:
        yield _fact("flows at", clean(state.flow_revision))
    if state.parent_session_id:
        what = "retry of" if is_retry(state.session_id, state.parent_session_id) else "fork of"
        yield _fact(what, state.parent_session_id)
    if state.thread:
        yield _fact("thread", clean(str(state.thread.get("key"))))
    for name, value in (state.inputs or state.given).items():
        yield _fact("input", f"{name} = {_value(value)}")
    if view.last is None:
        if head.owner is not None:
            yield _fact("run by", head.owner)
        if head.quarantined:
            yield _fact("on hold", one_line(head.quarantined, 300))
    if lock := lock_wait(state, view.behind):
        yield _fact("waits for", told(lock))
    elif state.lock is not None and not state.ended:
        yield _fact("holds", f"lock {one_line(state.lock.name, 200)}")
    for why in view.absent:
        yield _fact("needs", f"{one_line(why, 200)}; without it the session is put on hold")
    if view.unread is not None:
        unread = one_line(view.unread, 200)
        yield _fact("flow", f"its flow cannot be read here: {unread}; future nodes are not shown")
    if is_rejection(state.error):
        verdict_told = verdict(as_played(state, state.error)).removeprefix(REJECTED).lstrip(": ")
        yield _fact("rejected", one_line(verdict_told, 200))
    elif state.error:
        yield _fact("error", error_text(error_of(state)))
    if end := ended_at(state):
        yield _fact("ended", f"at {clean(end.node_id)}")
    for limit in state.limits:
        yield _fact("limit", f"continued at {clean(limits.told(limit))} (max_iterations)")
    for said in view.feedback:
        who = clean(str(said.person.get("name") or said.person["id"]))
        answer = clean(agent_of(said.turn))
        yield _fact("feedback", f"{HELPED[said.value].lower()}: {answer}, says {who}, {moment(said.at)}")
    yield ""
    for entry in tree(events, flow).children:
        yield from _entry(entry, state, view, 1)
    yield from _waits(state, flow, paint, command)


def _fact(name: str, value: str) -> str:
    return f"  {name:<9} {value}"


def _status(state: State, head: Head) -> str:
    if head.quarantined:
        return "on hold"
    word, why = state.stands, one_line(state.pause_reason or "", 200)
    if not state.paused_at:
        return word
    return f"{word}{f', {why}' if why not in ('', word) else ''} since {moment(state.paused_at)}"


def _entry(entry: Entry, state: State, view: View, depth: int) -> Iterator[str]:
    """A node or pass and what is in it, each on its line."""
    color, sign = MARKS[status_of(entry)]
    if entry.prompts:
        color, sign = MARKS["waiting"]
    label = f"{clean(entry.name):<16} {entry.type:<9}" if entry.kind == "node" else _pass_name(entry)
    lead = "  " * depth
    if entry.status == "pending":
        yield view.paint("dim", f"{lead}{sign} {label}".rstrip())
    else:
        yield f"{lead}{view.paint(color, sign)} {label} {_outcome(entry, state, view)}".rstrip()
    for child in _folded(entry.children, whole=view.whole):
        if isinstance(child, Entry):
            yield from _entry(child, state, view, depth + 1)
        else:
            yield view.paint("dim", f"{lead}  … {child} more, done (--all shows them)")


_SHOWN_PASSES = 12
_SHOWN_ENDS = 3


def _folded(children: Sequence[Entry], *, whole: bool) -> Iterator[Entry | int]:
    """The children; of many passes that are done only the first and last ones, and how many are between."""
    done = [child for child in children if child.kind == "pass" and child.status == "completed"]
    if whole or len(done) <= _SHOWN_PASSES:
        yield from children
        return
    hidden = {id(child) for child in done[_SHOWN_ENDS:-_SHOWN_ENDS]}
    counted = False
    for child in children:
        if id(child) not in hidden:
            yield child
        elif not counted:
            counted = True
            yield len(hidden)


def _pass_name(entry: Entry) -> str:
    """Return the label of a pass: the item and its number, the round, the branch, the case."""
    name = clean(entry.name)
    match entry.type:
        case "foreach":
            return f"[{name}] {one_line(_value(entry.item), 40)}"
        case "loop":
            return f"round {int(entry.name) + 1}"
        case "flow":
            return "its nodes"
        case "switch":
            return f"case {name}"
        case _:
            return name


def _outcome(entry: Entry, state: State, view: View) -> str:
    """The time that it took and its outcome, on one line."""
    if entry.status == "skipped":
        return f"skipped: {entry.reason}"
    took = elapsed(worked(entry.spans, view.now))
    tries = f", attempt {entry.attempts}" if entry.attempts > 1 else ""
    match entry.status:
        case "failed" if any(child.status == "failed" for child in entry.children):
            return f"{took}{tries}"  # what is in it says why
        case "failed":
            return f"{took}{tries}  {error_text(as_played(state, entry.error))}"
        case "interrupted":
            return INTERRUPTED[entry.reason or ""]
        case "retrying":
            return f"failed: {error_text(entry.error)}; again at {moment(entry.until or view.now)}"
        case "waiting":
            prompts = [state.prompts[prompt_id] for prompt_id in entry.prompts if prompt_id in state.prompts]
            whom = one_line(plain("; ".join(waiting_on(prompt, state.actor) for prompt in prompts)), 200)
            until = f"until {moment(entry.until)}" if entry.until else ""
            return f"waits {f'for {whom}' if prompts else until}, {took} so far"
        case "stopped":
            return f"stopped without an outcome after {took}"
        case "completed":
            output = "" if entry.output is None else one_line(_value(entry.output), 100)
            # Those who answered its questions from accounts of other names.
            asked = [prompt for prompt in state.prompts.values() if prompt.path == entry.path]
            actors = [
                actor
                for prompt in asked
                for actor in (prompt.actor, *(vote["actor"] for vote in prompt.votes))
            ]
            claimed = dict.fromkeys(answered_by(actor) for actor in actors if actor and is_claimed(actor))
            by = f"  by {', '.join(claimed)}" if claimed else ""
            return f"{took + tries:<8} {output}{by}"
        case _:
            return f"{took} so far{tries}"


def _value(value: Json) -> str:
    return one_line(unwrapped(value) if isinstance(value, str) else encode(value).decode(), 120)


def _waits(state: State, flow: Flow | None, paint: Paint, command: Callable[..., str]) -> Iterator[str]:
    for prompt in open_prompts(state):
        said = session_face(state, prompt, flow)
        yield ""
        first, *rest = face_lines(said)
        yield f"{paint(*MARKS['waiting'])} {paint('bold', first)}"
        yield from (f"  {part}" for part in rest)
        unseen = ", not shown to anyone yet" if prompt.status == "requested" else ""
        yield f"  {clean(prompt.path)}: {told(said.lead)}{unseen}"
        labels = " | ".join(one_line(each.label, 200) for each in said.controls)
        yield f"  {labels or 'text'}: {command('prompts', 'answer', prompt.prompt_id)} ANSWER"
    for timer in state.timers.values():
        if timer.purpose == "wait":
            yield ""
            yield f"{paint(*MARKS['waiting'])} {clean(timer.path or '')} waits until {moment(timer.due_at)}"


def conversation_lines(turns: Sequence[Turn], paint: Paint) -> Iterator[str]:
    """The conversations of a session's agents: who said what, which tools were called, and what these gave."""
    agent = None
    for turn in turns:
        if turn.agent != agent:
            agent = turn.agent
            yield ""
            yield paint("bold", f"Conversation of {clean(agent)}")
        yield ""
        if turn.who == "tool":
            ended = "failed" if turn.failed else "completed"
            mark = MARKS["waiting" if turn.waits else ended if turn.done else "started"]
            decided = f"  ({one_line(turn.decided, 200)})" if turn.decided else ""
            yield f"  {paint(*mark)} {clean(turn.name)}: {brief_input(turn.name, turn.input)}{decided}"
        else:
            notes = ["thinking" if turn.who == "model" else "overheard"] if turn.aside else []
            notes += [turn.ending] if turn.ending else []
            note = f" ({', '.join(notes)})" if notes else ""
            yield f"  {paint('bold', one_line(turn.name, 60))}{note}  {paint('dim', moment(turn.at))}"
        yield from (f"    {line}" for line in clean(turn.text).splitlines())
