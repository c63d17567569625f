"""What happens in a session, as lines of text. Pure: values in, text out, everything from outside made visible."""

from __future__ import annotations

from datetime import datetime

from bot.cli.output import Paint, clean, one_line
from bot.rendering.text import elapsed, plain, waiting_on
from engine import answers, clock
from engine import events as ev
from engine.codec import Json
from engine.events import Event
from engine.nodes.specs import node_types
from engine.state import PromptRun, State
from engine.storage.port import Head

MARKS = {"completed": "✓", "failed": "✗", "skipped": "–", "interrupted": "!", "started": "▸"}
COLORS = {"completed": "green", "failed": "red", "skipped": "dim", "interrupted": "yellow", "started": "blue"}
STATUS_COLORS = {
    "complete": "green",
    "failed": "red",
    "aborted": "red",
    "paused": "yellow",
    "running": "blue",
}


def happened(state: State, event: Event, paint: Paint) -> str | None:
    """The line for an event; None for one that says nothing to a person."""
    match event:
        case ev.SessionStarted():
            return f"{paint('bold', clean(event.flow_name))}  {paint('dim', event.session_id)}"
        case ev.NodeCompleted():
            return mark("completed", event.node_id, _completed(state, event), paint)
        case ev.NodeFailed():
            return mark("failed", event.node_id, error_text(event.error), paint)
        case ev.NodeSkipped():
            return mark("skipped", event.node_id, f"skipped: {event.reason}", paint)
        case ev.NodeInterrupted():
            return mark("interrupted", event.node_id, _INTERRUPTED[event.reason], paint)
        case ev.PromptAnswered():
            return _answered(state, event, paint)
        case ev.PromptExpired():
            return f"  {paint('yellow', '⌛')} nobody answered in time ({event.outcome})"
        case ev.SessionMessage():
            return f"  {paint('blue', '»')} {_who(event.actor)}: {one_line(event.message)}"
        case ev.SessionAborted():
            reason = f": {one_line(event.reason)}" if event.reason else ""
            return f"  {paint('red', '■')} aborted by {_who(event.actor or {})}{reason}"
    return None


_INTERRUPTED = {
    "crash": "was running when sayso was killed; what it did is not known",
    "cut": "was stopped; what it did is not known",
    "timeout": "ran out of time and was stopped; what it did is not known",
    "lost": "could not be carried out",
}


_RESOLVED = ("interrupted", "failed")
"""Kinds of prompts that ask how a node goes on, and are not its own question."""


def mark(status: str, name: str, more: str, paint: Paint) -> str:
    """A node's line: a mark, its id, and what there is to say."""
    sign = paint(COLORS[status], MARKS.get(status, "·"))
    return f"  {sign} {clean(name)}" + (f"  {paint('dim', more)}" if more else "")


def error_text(error: dict[str, Json] | None) -> str:
    """An error of a node or a flow on one line."""
    if not error:
        return "failed"
    return one_line(str(error.get("message") or error.get("type") or "failed"), 200)


def _completed(state: State, event: ev.NodeCompleted) -> str:
    """How a node came to its end: who answered, or how long it took where that is worth knowing."""
    path = event.path or ""
    for prompt in state.prompts.values():
        if prompt.path == path and prompt.status == "answered" and prompt.kind not in _RESOLVED:
            return f"{one_line(answers.summary(prompt), 60)}, {_who(prompt.actor or {})}"
    run = state.nodes.get(path)
    if run is None or run.started_at is None or node_types()[run.type].mode != "run":
        return ""
    return elapsed(clock.seconds_between(run.started_at, event.timestamp))


def _answered(state: State, event: ev.PromptAnswered, paint: Paint) -> str | None:
    prompt = state.prompts[event.prompt_id]
    if prompt.kind == "input":
        return mark("completed", prompt.spec["nodeId"], one_line(answers.summary(prompt), 60), paint)
    if prompt.kind in _RESOLVED:
        choice = f"{answers.summary(prompt)}, says {_who(event.actor)}"
        return f"  {paint('yellow', '↻')} {clean(prompt.spec['nodeId'])}  {one_line(choice)}"
    return None


def _who(actor: dict[str, Json]) -> str:
    name = str(actor.get("name") or str(actor.get("id") or "somebody").removeprefix("local:"))
    played = " (simulated)" if actor.get("simulated") else ""
    return one_line(name, 60) + played


def started_by(state: State) -> str:
    """Who started the session, and from where."""
    place = "" if state.thread else " at the terminal"
    return _who(state.actor) + place


def asked_of(state: State, prompt: PromptRun) -> str:
    """Whom a prompt asks, in words."""
    return one_line(plain(waiting_on(prompt.spec, state.actor)), 120)


def question_lines(message: str) -> list[str]:
    """A prompt's message as lines."""
    return clean(plain(message)).strip().splitlines() or [""]


def moment(text: str) -> str:
    """A stored time in the local timezone: the hour alone where it is today."""
    when = clock.from_text(text).astimezone()
    today = when.date() == datetime.now(when.tzinfo).date()
    return f"{when:%H:%M:%S}" if today else f"{when:%Y-%m-%d %H:%M}"


def ago(text: str, now: str) -> str:
    """How long ago a time is."""
    return f"{elapsed(clock.seconds_between(text, now))} ago"


def standing(head: Head) -> str:
    """A session's status as people say it; `paused` and `waiting` are one thing to them."""
    if head.quarantined:
        return "set aside"
    return head.status
