"""One session as lines for people: where it stands, each node, and what it waits for on whom. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bot.cli.narration import (
    COLORS,
    MARKS,
    STATUS_COLORS,
    ago,
    asked_of,
    error_text,
    moment,
    question_lines,
    started_by,
)
from bot.cli.output import Paint, clean, one_line
from bot.rendering.text import elapsed
from bot.terminal import open_prompts
from engine import clock
from engine.codec import Json, encode
from engine.flow import Flow, Node
from engine.state import NodeRun, PromptRun, State
from engine.storage.port import Head


def show_lines(
    state: State, head: Head, flow: Flow, now: str, paint: Paint, command: Callable[..., str]
) -> Iterator[str]:
    """The lines; `command` makes command lines that work in this place."""
    yield f"{paint('bold', clean(state.flow_name))}  {state.session_id}"
    yield _fact("status", paint(STATUS_COLORS.get(state.status, "dim"), _status(state, head)))
    yield _fact(
        "started", f"{moment(state.created_at)} ({ago(state.created_at, now)}) by {started_by(state)}"
    )
    yield _fact("changed", f"{moment(state.updated_at)} ({ago(state.updated_at, now)})")
    if state.thread:
        yield _fact("thread", clean(str(state.thread.get("key"))))
    for name, value in (state.inputs or state.given).items():
        yield _fact("input", f"{name} = {_value(value)}")
    if head.owner is not None:
        yield _fact("run by", head.owner)
    if head.quarantined:
        yield _fact("set aside", one_line(head.quarantined, 300))
    if state.error:
        yield _fact("error", error_text(state.error))
    yield ""
    for node in flow.nodes:
        yield _node(node, state, now, paint)
    yield from _waits(state, paint, command)


def _fact(name: str, value: str) -> str:
    return f"  {name:<9} {value}"


def _status(state: State, head: Head) -> str:
    if head.quarantined:
        return "set aside"
    since = f", {state.pause_reason} since {moment(state.paused_at)}" if state.paused_at else ""
    return state.status + since


def _node(node: Node, state: State, now: str, paint: Paint) -> str:
    run = state.nodes.get(node.id)
    if run is None:
        return paint("dim", f"  · {node.id:<16} {node.type}")
    waits = any(prompt.path == node.id for prompt in open_prompts(state))
    sign = paint("yellow", "●") if waits else paint(COLORS[run.status], MARKS[run.status])
    more = "waits" if waits else _outcome(run, now)
    return f"  {sign} {node.id:<16} {node.type:<9} {more}".rstrip()


def _outcome(run: NodeRun, now: str) -> str:
    """How long it took, and what came of it, on one line."""
    if run.status == "skipped":
        return f"skipped: {run.reason}"
    if run.status == "failed":
        return error_text(run.error)
    if run.status == "interrupted":
        return f"interrupted ({run.reason}); what it did is not known"
    took = elapsed(clock.seconds_between(run.started_at or now, run.ended_at or now))
    if run.status == "started":
        return f"{took} so far"
    return f"{took:<8} {one_line(_value(run.output), 100)}"


def _value(value: Json) -> str:
    return one_line(value if isinstance(value, str) else encode(value).decode(), 120)


def _waits(state: State, paint: Paint, command: Callable[..., str]) -> Iterator[str]:
    for prompt in open_prompts(state):
        yield ""
        yield from _prompt(state, prompt, paint, command)
    for timer in state.timers.values():
        if timer.purpose == "wait":
            yield ""
            yield f"{paint('yellow', '●')} {clean(timer.path or '')} waits until {moment(timer.due_at)}"


def _prompt(state: State, prompt: PromptRun, paint: Paint, command: Callable[..., str]) -> Iterator[str]:
    first, *rest = question_lines(prompt.spec["message"])
    yield f"{paint('yellow', '●')} {paint('bold', first)}"
    yield from (f"  {part}" for part in rest)
    until = f", until {moment(prompt.deadline)}" if prompt.deadline else ", not shown to anybody yet"
    yield f"  {prompt.kind}, asks {asked_of(state, prompt)}{until}"
    labels = " | ".join(clean(str(option["label"])) for option in prompt.spec["options"])
    yield f"  {labels or 'text'}: {command('prompts', 'answer', prompt.prompt_id)} ANSWER"
