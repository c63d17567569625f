"""What happens in a session, as lines of text. Pure: values in, text out, everything from outside made visible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bot.rendering.agents import brief_input
from bot.rendering.flow import item_label
from bot.rendering.plan import plan_lines, plan_steps, plan_title
from bot.rendering.text import elapsed, plain, waiting_on
from bot.terminal.console import Paint, clean, moment, one_line, plural
from engine.decide import question
from engine.forms import value_text
from engine.forms.question import Question
from engine.journal import events as ev
from engine.journal.events import Event
from engine.journal.queries import REJECTED, TURN, is_rejected, is_rejection
from engine.journal.records import Head
from engine.journal.state import ASKS, LEFT, Asked, State
from engine.language import timestamps
from engine.language.actors import is_claimed
from engine.language.codec import Json
from engine.nodes.types.registry import mode_of

MARKS = {
    "pending": ("dim", "·"),
    "started": ("blue", "▸"),
    "waiting": ("yellow", "●"),
    "retrying": ("yellow", "↻"),
    "interrupted": ("yellow", "!"),
    "completed": ("green", "✓"),
    REJECTED: ("red", "🚫"),
    "failed": ("red", "✗"),
    "aborted": ("red", "■"),
    "skipped": ("dim", "–"),
    "stopped": ("dim", "■"),
}
"""The colour and the sign of what became of a node."""
STATUS_COLORS = {
    "complete": "green",
    "failed": "red",
    "aborted": "red",
    "paused": "yellow",
    "running": "blue",
}


def happened(state: State, event: Event, paint: Paint) -> str | None:
    """The line for an event; None for one that says nothing to a person."""
    return _worked(state, event, paint) or _said(state, event, paint)


def _worked(state: State, event: Event, paint: Paint) -> str | None:
    """What became of the session, a node, or a tool call."""
    match event:
        case ev.SessionStarted():
            return f"{paint('bold', clean(event.flow_name))}  {paint('dim', event.session_id)}"
        case ev.Completion():
            run = state.nodes.get(event.path or "")
            status = REJECTED if run is not None and is_rejected(run) else "completed"
            return mark(status, event.path or "", _completed(state, event), paint)
        case ev.NodeFailed() if is_rejection(event.error):
            return mark(REJECTED, event.path or "", error_text(event.error), paint)
        case ev.NodeFailed():
            return mark("failed", event.path or "", error_text(event.error), paint)
        case ev.NodeSkipped():
            return mark("skipped", event.path or "", f"skipped: {event.reason}", paint)
        case ev.NodeInterrupted() if event.reason == LEFT and _is_turn(event.path or ""):
            return None  # it is made again at once
        case ev.NodeInterrupted():
            return mark("interrupted", event.path or "", _INTERRUPTED[event.reason], paint)
        case ev.NodeRetried():
            again = f"{error_text(event.error)}; tries again at {moment(event.due_at)}"
            return mark("retrying", event.path or "", again, paint)
        case ev.IterationStarted():
            item = item_at(state, event.path or "", event.index)
            return mark("started", event.scope, item, paint) if item else None
        case ev.ContainerCompleted() if _holds_nodes(state, event.path or ""):
            at_limit = ", at its limit" if event.limit is not None else ""
            return mark("completed", event.path or "", _passes(state, event.path or "") + at_limit, paint)
        case ev.EdgeResolved() if event.limit is not None:
            told = f"would lead back to {clean(event.limit)} again, and goes on: its limit is reached"
            return mark("interrupted", event.path or "", told, paint)
        case ev.LockAcquired() if state.lock is not None and state.lock.requested_at != event.timestamp:
            return f"  {paint('green', '✓')} lock {one_line(event.name, 80)}"
        case ev.AgentToolRequested() if steps := plan_steps(event.name, event.input):
            lines = [plan_title(steps), *(clean(plain(line)) for line in plan_lines(steps))]
            return mark("started", event.path or "", "\n      ".join(lines), paint)
        case ev.AgentToolRequested():
            brief = brief_input(event.name, event.input)
            return mark("started", event.path or "", f"{one_line(event.name, 80)}: {one_line(brief)}", paint)
        case ev.AgentToolResult():
            why = error_text(event.error) if event.error else _refusal(event) if event.is_error else ""
            if question.in_place(state, event.path):
                why = "was answered in its place, and did not run"
            return mark("failed" if event.is_error else "completed", event.path or "", why, paint)
        case ev.AgentMessage(dropped=dict() as dropped):
            left_out = plural(sum(dropped.values()), "block")
            return mark(
                "interrupted", event.turn or "", f"the API left out {left_out} of earlier thinking", paint
            )
        case ev.AgentCompacted():
            return mark("completed", event.turn, f"{event.replaced} messages became a summary", paint)
    return None


def _said(state: State, event: Event, paint: Paint) -> str | None:
    """What people did, and what they are waited for."""
    match event:
        case ev.PromptAnswered():
            prompt = state.prompts.get(event.prompt_id)
            if prompt is None:
                return None
            if prompt.input:
                return mark("completed", prompt.node_id, one_line(question.summary(prompt), 60), paint)
            if prompt.rules.action == "resolve":
                choice = f"{question.summary(prompt)}, says {answered_by(event.actor)}"
                return f"  {paint('yellow', '↻')} {clean(prompt.path)}  {one_line(choice)}"
            return None
        case ev.PromptVoted() | ev.PromptEdited() | ev.PromptHanded():
            return f"  {paint('blue', '»')} {answered_by(event.actor)} {_did(state, event)}"
        case ev.GrantGiven():
            return f"  {paint('green', '∞')} {clean(event.tool)}: calls like this are allowed until {moment(event.until)}"
        case ev.GrantUsed():
            return f"  {paint('green', '∞')} {clean(event.path or '')}  runs unasked: {clean(event.prompt_id)} allows it"
        case ev.GrantRevoked():
            return f"  {paint('yellow', '∞')} {clean(event.prompt_id)}  revoked: calls like that are asked about again"
        case ev.PromptExpired():
            return f"  {paint('yellow', '⌛')} nobody answered in time ({event.outcome})"
        case ev.SessionMessage():
            return f"  {paint('blue', '»')} {_who(event.actor)}: {one_line(event.message)}"
        case ev.AgentBudget():
            return (
                f"  {paint('blue', '»')} {_who(event.actor)} lets {clean(event.path or '')} go on at its cap"
            )
        case ev.AgentOutcome(actor=None) if event.how != "ask":
            helped = _HELPED.get(event.how, event.how).format(model=event.model)
            return f"  {paint('yellow', '↻')} {clean(event.path or '')}  {helped}"
        case ev.SessionAborted():
            reason = f": {one_line(event.reason)}" if event.reason else ""
            return f"  {paint('red', '■')} aborted by {_who(event.actor or {})}{reason}"
    return None


def _refusal(event: ev.AgentToolResult) -> str:
    """Why a call was not made: what the model is told of it, as far as it fits on a line."""
    told = next((str(block["text"]) for block in event.content if block.get("type") == "text"), "refused")
    return one_line(told.partition("\n")[0], 200)


def _did(state: State, event: ev.PromptVoted | ev.PromptEdited | ev.PromptHanded) -> str:
    """What somebody did to a question that is not its answer."""
    prompt = state.prompts[event.prompt_id]
    match event:
        case ev.PromptVoted():
            return f"{question.DECIDED[event.vote]}: {question.tally(prompt)}"
        case ev.PromptEdited():
            return one_line(f"changed {', '.join(_changes(prompt, event))}", 200)
        case ev.PromptHanded():
            return f"handed it over to {one_line(event.to, 80)}"
        case _:
            return "took the answer back"


def _changes(prompt: Asked, event: ev.PromptEdited) -> Iterator[str]:
    """Each changed value: old → new."""
    for field in prompt.fields:
        name = field["name"]
        if name in event.before:
            old, new = (value_text(field, values.get(name)) for values in (event.before, event.values))
            yield f"{name}: {old} → {new}"


def proposal_lines(prompt: Asked) -> list[str]:
    """What an approval proposes, what runs once it is given, and how far the votes are."""
    fields = prompt.fields
    values, lines = prompt.values, []
    for field in fields if prompt.is_approval else ():
        lines.append(f"{field['title']}: {value_text(field, values.get(field['name']))}")
    lines += covered_lines(prompt.covers)
    if prompt.required > 1:
        lines.append(question.tally(prompt))
    return [clean(line) for line in lines]


def covers_json(prompt: Question) -> dict[str, Json] | None:
    """What runs once a question is approved, for a machine: the step, its text in full, and the digest that votes bind to."""
    covers = prompt.covers
    return covers and {name: covers.get(name) for name in ("nodeId", "text", "digest")}


def covered_lines(covers: Mapping[str, Json] | None) -> list[str]:
    """What will run once an approval is given, exactly."""
    if not covers:
        return []
    head = f"What runs once this is approved ({covers['nodeId']}):"
    return [head, *(f"  {line}" for line in str(covers["text"]).split("\n"))]


_INTERRUPTED = {
    "crash": "was running when sayso was killed; what it did is not known",
    ASKS: "its server asks for something",
    LEFT: "left at a checkpoint; goes on from there",
    "cut": "was stopped; what it did is not known",
    "timeout": "ran out of time and was stopped; what it did is not known",
    "lost": "could not be carried out",
}


def _is_turn(path: str) -> bool:
    """Whether this is a model call."""
    return path.rpartition("/")[2].startswith(f"{TURN}[")


_HELPED = {
    "room": "the answer was cut: asked again with more room",
    "model": "the model declined: {model} is asked",
    "compact": "the conversation is too long: it is summed up",
    "go_on": "the answer was cut: it goes on",
    "resend": "the model paused: it goes on",
    "said": "the answer was empty: asked again",
}
"""What an agent does by itself after a model call without an answer to go on with."""


def mark(status: str, name: str, more: str, paint: Paint) -> str:
    """A node's line: a mark, its id, and what there is to say."""
    sign = paint(*MARKS[status])
    return f"  {sign} {clean(name)}" + (f"  {paint('dim', more)}" if more else "")


def error_text(error: dict[str, Json] | None) -> str:
    """An error of a node or a flow on one line."""
    if not error:
        return "failed"
    return one_line(str(error.get("message") or error.get("type") or "failed"), 200)


def _completed(state: State, event: ev.Completion) -> str:
    """How a node came to its end: who answered, or how long it took where that is worth knowing."""
    path = event.path or ""
    for prompt in state.prompts.values():
        if prompt.path == path and prompt.status == "answered" and prompt.rules.action != "resolve":
            return f"{one_line(question.summary(prompt), 60)}, {answered_by(prompt.actor or {})}"
    run = state.nodes.get(path)
    if run is None or run.started_at is None or mode_of(run.type) != "run":
        return ""
    return elapsed(timestamps.seconds_between(run.started_at, event.timestamp))


def _holds_nodes(state: State, path: str) -> bool:
    """Whether a node is a container itself, and not one whose `on_failure` has ended."""
    run = state.nodes.get(path)
    return run is None or mode_of(run.type) == "container"


def _passes(state: State, path: str) -> str:
    """How many passes a container took, where that is a number that people know."""
    run = state.nodes.get(path)
    passes = run.output.get("iterations") if run is not None and isinstance(run.output, dict) else None
    if not isinstance(passes, list):
        return ""
    return f"{len(passes)} pass" + ("es" if len(passes) != 1 else "")


def item_at(state: State, path: str, index: int) -> str:
    """What the item of a pass is called; empty where it has no name, or is not known any more."""
    container = state.containers.get(path)
    items = container.items if container is not None else None
    return one_line(item_label(items[index]), 60) if items and index < len(items) else ""


def where(state: State, path: str) -> str:
    """Where a question inside something stands, with the items around it: `rollout[1]/confirm (us)`."""
    if "/" not in path or path not in state.nodes:
        return ""
    found, before = [], ""
    for part in path.split("/"):
        owner, bracket, index = f"{before}{part}".rpartition("[")
        if bracket and index.rstrip("]").isdecimal():
            found.append(item_at(state, owner, int(index.rstrip("]"))))
        before = f"{before}{part}/"
    items = ", ".join(item for item in found if item)
    return clean(path) + (f" ({items})" if items else "")


def _who(actor: dict[str, Json]) -> str:
    name = str(actor.get("name") or str(actor.get("id") or "somebody").removeprefix("local:"))
    played = " (simulated)" if actor.get("simulated") else ""
    return one_line(name, 60) + played


def answered_by(actor: dict[str, Json]) -> str:
    """Name who answered; at a terminal also their account, where it is called otherwise."""
    account = f" (account {one_line(str(actor['account']), 60)})" if is_claimed(actor) else ""
    return _who(actor) + account


def started_by(state: State) -> str:
    """Who started the session, and from where."""
    place = "" if state.thread else " at the terminal"
    return _who(state.actor) + place


def asked_of(state: State, prompt: Asked) -> str:
    """Whom a prompt asks, in words."""
    return one_line(plain(waiting_on(prompt, state.actor)), 120)


def question_lines(message: str) -> list[str]:
    """A prompt's message as lines."""
    return clean(plain(message)).strip().splitlines() or [""]


def standing(head: Head) -> str:
    """A session's status as people say it; `paused` and `waiting` are one thing to them."""
    if head.quarantined:
        return "set aside"
    return head.status
