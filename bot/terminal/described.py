"""Events in words. Pure: values in, text out, everything from outside made visible.

`described` is the only place where an event becomes a line of text: narration at a terminal and the story of a scenario
print it, and the tree of `sessions show` says what interrupted a node in the same words. What Slack shows is drawn from
states (`bot.rendering`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bot.faces import marks
from bot.faces.tools import brief_input, plan_lines, plan_steps, plan_title
from bot.rendering.agents import text_of
from bot.rendering.text import read
from bot.terminal.console import Paint, clean, moment, one_line, plural
from bot.terminal.narration import answered_by, as_played, error_text, item_at, item_of_failure, person, told
from engine.decide import question
from engine.forms import value_text
from engine.journal import events as ev
from engine.journal.events import Event
from engine.journal.phases import REJECTED
from engine.journal.queries import TURN, is_rejected, is_rejection, is_retry
from engine.journal.state import ASKS, LEFT, State
from engine.language import timestamps
from engine.language.counting import elapsed
from engine.nodes.types.registry import mode_of

_COLORS = {
    "pending": "dim",
    "started": "blue",
    "waiting": "yellow",
    "paused": "yellow",
    "retrying": "yellow",
    "interrupted": "yellow",
    "completed": "green",
    REJECTED: "red",
    "failed": "red",
    "aborted": "red",
    "skipped": "dim",
    "stopped": "dim",
}
MARKS = {
    **{status: (color, marks.MARKS[status].sign) for status, color in _COLORS.items()},
    "asked": ("yellow", "?"),
    "said": ("dim", "“"),
    "person": ("blue", "»"),
    "granted": ("green", "∞"),
    "revoked": ("yellow", "∞"),
    "late": ("yellow", "⌛"),
}
"""Colours and signs: of nodes by their status, then of what people and models do."""
INTERRUPTED = {
    "crash": "was running when sayso was killed; outcome unknown",
    ASKS: "its server asks for something; continues with the answer",
    LEFT: "left; can continue where it stopped",
    "cut": "was stopped; outcome unknown",
    "timeout": "timed out and was stopped; outcome unknown",
    "lost": "could not be carried out",
}
_HELPED = {
    "room": "the answer was cut off: retrying with more room",
    "model": "the model declined: asking {model}",
    "compact": "the conversation is too long: summarising",
    "go_on": "the answer was cut off: continuing",
    "resend": "the model paused: continuing",
    "said": "the answer was empty: retrying",
}
"""The remedies that an agent applies by itself after a model call without an answer to continue with."""


class Described(NamedTuple):
    """A line about an event. `mark` is one of `MARKS`, empty in the line that begins a session."""

    mark: str
    name: str
    """The path, or a whole sentence about people."""
    text: str = ""


def described(state: State, event: Event) -> Iterator[Described]:
    """The lines for an event, none where it says nothing to people. `state` is the session's state after it, or
    later."""
    yield from _work(state, event, event.path or "")
    yield from _agents(state, event, event.path or "")
    yield from _people(state, event, event.path or "")


def painted(found: Described, paint: Paint) -> str:
    """A line as a terminal shows it."""
    if not found.mark:
        return f"{paint('bold', clean(found.name))}  {paint('dim', found.text)}"
    text = f"  {paint('dim', found.text)}" if found.text else ""
    return f"  {paint(*MARKS[found.mark])} {clean(found.name)}{text}"


def _work(state: State, event: Event, path: str) -> Iterator[Described]:
    """Lines about the session, its nodes and its passes."""
    match event:
        case ev.SessionStarted():
            yield Described("", event.flow_name, event.session_id)
        case ev.Completion():
            run = state.nodes.get(path)
            rejected = run is not None and is_rejected(run)
            yield Described(REJECTED if rejected else "completed", path, _completed(state, event))
        case ev.NodeFailed():
            why = error_text(as_played(state, event.error))
            # A node fails with the error of one inside of it, whose line says it.
            if (inner := str(event.error.get("path") or path)) != path:
                why = f"failed at {item_of_failure(state, path) or clean(inner)}"
            yield Described(REJECTED if is_rejection(event.error) else "failed", path, why)
        case ev.NodeSkipped():
            yield Described("skipped", path, f"skipped: {event.reason}")
        case ev.NodeInterrupted():
            # A model call that left at a checkpoint is made again at once, and so is the step that a retry begins with.
            again = is_retry(state.session_id, state.parent_session_id)
            if event.reason != LEFT or not (again or path.rpartition("/")[2].startswith(f"{TURN}[")):
                yield Described("interrupted", path, INTERRUPTED[event.reason])
        case ev.NodeRetried():
            yield Described("retrying", path, f"{error_text(event.error)}; retries at {moment(event.due_at)}")
        case ev.IterationStarted():
            if item := item_at(state, path, event.index):
                yield Described("started", event.scope, item)
        case ev.ContainerCompleted():
            # Of a node that holds no others, only its `on_failure` has ended.
            run = state.nodes.get(path)
            if run is None or mode_of(run.type) == "container":
                passes = run.output.get("iterations") if run and isinstance(run.output, dict) else None
                count = (
                    f"{len(passes)} pass{'es' if len(passes) != 1 else ''}"
                    if isinstance(passes, list)
                    else ""
                )
                at_limit = ", at its limit" if event.limit is not None else ""
                yield Described("completed", path, count + at_limit)
        case ev.EdgeResolved() if event.limit is not None:
            told = f"does not go back to {clean(event.limit)}: limit reached, continuing"
            yield Described("interrupted", path, told)
        case ev.LockAcquired() if state.lock is not None and state.lock.requested_at != event.timestamp:
            yield Described("completed", f"lock {one_line(event.name, 80)}")
        case ev.SessionAborted():
            reason = f": {one_line(event.reason)}" if event.reason else ""
            yield Described("aborted", f"cancelled by {person(event.actor or {})}{reason}")


def _completed(state: State, event: ev.Completion) -> str:
    """The end of a node: who answered, or how long it took where that is worth knowing."""
    path = event.path or ""
    for prompt in state.prompts.values():
        if prompt.path == path and prompt.status == "answered" and prompt.rules.action != "resolve":
            return f"{one_line(question.summary(prompt), 60)}, {answered_by(prompt.actor or {})}"
    run = state.nodes.get(path)
    if run is None or run.started_at is None or mode_of(run.type) != "run":
        return ""
    tries = f" in {run.attempt} tries" if run.attempt > 1 else ""
    return elapsed(timestamps.seconds_between(run.started_at, event.timestamp)) + tries


def _agents(state: State, event: Event, path: str) -> Iterator[Described]:
    """Lines about conversations with models."""
    if isinstance(event, ev.CallOutcome) and (said := text_of(event.answer)):
        yield Described("said", path, one_line(said, 100))
    match event:
        case ev.AgentToolRequested() if steps := plan_steps(event.name, event.input):
            lines = [plan_title(steps), *(told(step.words) for step in plan_lines(steps))]
            yield Described("started", path, "\n      ".join(lines))
        case ev.AgentToolRequested():
            brief = one_line(brief_input(event.name, event.input))
            yield Described("started", path, f"{one_line(event.name, 80)}: {brief}")
        case ev.AgentToolResult():
            why = error_text(event.error) if event.error else ""
            if event.is_error and not why:
                # As the model is told of it, as far as it fits on a line.
                texts = (str(block["text"]) for block in event.content if block.get("type") == "text")
                why = one_line(next(texts, "refused").partition("\n")[0], 200)
            if question.in_place(state, event.path):
                why = "was answered instead of running"
            yield Described("failed" if event.is_error else "completed", path, why)
        case ev.AgentMessage(dropped=dict() as dropped):
            left_out = plural(sum(dropped.values()), "block")
            what = f"the API dropped {left_out} of earlier thinking"
            yield Described("interrupted", event.turn or "", what)
        case ev.AgentCompacted():
            yield Described("completed", event.turn, f"{plural(event.replaced, 'message')} summarised")
        case ev.AgentBudget():
            yield Described("person", f"{person(event.actor)} let {path} continue past its cap")
        case ev.AgentOutcome(actor=None) if event.how != "ask":
            helped = _HELPED.get(event.how, event.how).format(model=event.model)
            yield Described("retrying", f"{path}  {helped}")


def _people(state: State, event: Event, path: str) -> Iterator[Described]:
    """Lines about what people said and decided."""
    prompt = state.prompts.get(event.prompt_id) if isinstance(event, ev.PromptEvent) else None
    match event:
        case ev.PromptRequested():
            yield Described("asked", path, one_line(read(str(event.prompt.get("message"))), 100))
        case ev.PromptAnswered() if prompt is not None and prompt.input:
            yield Described("completed", prompt.node_id, one_line(question.summary(prompt), 60))
        case ev.PromptAnswered() if prompt is not None and prompt.rules.action == "resolve":
            choice = one_line(f"{question.summary(prompt)}, says {answered_by(event.actor)}")
            yield Described("retrying", f"{clean(prompt.path)}  {choice}")
        case ev.PromptVoted() if prompt is not None:
            vote = f"{question.DECIDED[event.vote]}: {question.tally(prompt)}"
            yield Described("person", f"{answered_by(event.actor)} {vote}")
        case ev.PromptEdited() if prompt is not None:
            changes = []
            for field in prompt.fields:
                name = field["name"]
                if name in event.before:
                    old, new = (
                        value_text(field, values.get(name)) for values in (event.before, event.values)
                    )
                    changes.append(f"{name}: {old} → {new}")
            changed = one_line(f"changed {', '.join(changes)}", 200)
            yield Described("person", f"{answered_by(event.actor)} {changed}")
        case ev.PromptHanded():
            yield Described("person", f"{answered_by(event.actor)} handed it to {one_line(event.to, 80)}")
        case ev.PromptExpired():
            yield Described("late", f"nobody answered in time ({event.outcome})")
        case ev.GrantGiven():
            until = moment(event.until)
            yield Described("granted", f"{event.tool}: calls like this are allowed until {until}")
        case ev.GrantUsed():
            yield Described("granted", f"{path}  runs without asking, allowed by {event.prompt_id}")
        case ev.GrantRevoked():
            yield Described("revoked", f"{event.prompt_id}  revoked: people are asked about such calls again")
        case ev.SessionMessage():
            yield Described("person", f"{person(event.actor)}: {one_line(event.message)}")
