"""The card of a session: one message in its thread that is edited in place. Pure.

It shows every node with what became of it, what the session waits for and on whom, and how it ended. Times of what
is not over are points in time ("since 14:02"), not durations: a card is edited when something happens, and a
duration would be wrong a minute later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from bot.rendering.blocks import (
    Block,
    Rendered,
    actions,
    button,
    context,
    fit,
    header,
    rendered,
    section,
    small,
)
from bot.rendering.blocks import sections as lines_as_sections
from bot.rendering.flow import WITHOUT_EFFECT, FlowLike, label_of
from bot.rendering.text import clip, date, elapsed, one_line, person, safe, shown, waiting_on
from engine import clock
from engine.codec import Json, encode
from engine.state import NodeRun, PromptRun, State, TimerRun

CANCEL = "sayso:cancel"
"""Action of the button that ends a session; its value is the session's id."""

_WHOLE = 40
"""Up to so many nodes each has its line."""
_AHEAD = 8
_BEHIND = 20
_INPUTS = 12

_ICONS = {"completed": "✅", "failed": "❌", "skipped": "⏭️", "interrupted": "⚠️", "started": "▶️"}
_WORDS = {"completed": "done", "failed": "failed", "skipped": "skipped"}
_ENDS = {"complete": ("✅", "Completed"), "failed": ("❌", "Failed"), "aborted": ("🛑", "Aborted")}


def card_key(session_id: str) -> str:
    """The outbox key of a session's card."""
    return f"card:{session_id}"


def card(state: State, flow: FlowLike, now: str, *, names: Mapping[str, str] | None = None) -> Rendered:
    """The card as it is now. `names` are Slack's ids by e-mail address and `@group`, as far as they are known."""
    key = card_key(state.session_id)
    status = _status(state, flow, names or {})
    icon = status.split(" ", 1)[0]
    title = f"{icon} {flow.name}"
    head = [header(title, key), section(status, most=900), context(_origin(state), most=600)]
    if state.inputs or state.given:
        head.append(small(_inputs(state.inputs if state.inputs is not None else state.given), most=1_500))
    tail = [] if state.ended else [context(f"As of {date(now, '{time_secs}')}", most=300)]
    if state.phase in ("running", "waiting"):
        tail.append(actions([_cancel(state.session_id)]))
    body = lines_as_sections(_lines(state, flow, names or {}))
    return rendered(f"{safe(one_line(flow.name, 80))}: {status}", fit(head, body, tail), key)


def _cancel(session_id: str) -> Block:
    confirm = {
        "title": {"type": "plain_text", "text": "Cancel this run?"},
        "text": {"type": "plain_text", "text": "What is done stays done. Nothing further starts."},
        "confirm": {"type": "plain_text", "text": "Cancel it"},
        "deny": {"type": "plain_text", "text": "Keep going"},
        "style": "danger",
    }
    return {**button("Cancel", CANCEL, session_id), "confirm": confirm}


# --- the top -----------------------------------------------------------------------------------------------


def _status(state: State, flow: FlowLike, names: Mapping[str, str]) -> str:
    """The state in one short line: it must say everything on a phone."""
    if state.phase == "ended":
        return _ended(state, flow)
    if state.phase == "finalizing":
        return "⏳ *Ending*"
    if state.phase == "waiting":
        return _waiting(state, flow, names)
    finished = sum(1 for node in flow.nodes if node.id in state.nodes and node.id not in state.active)
    return f"▶️ *Running* · {min(finished + 1, len(flow.nodes))} of {len(flow.nodes)}"


def _waiting(state: State, flow: FlowLike, names: Mapping[str, str]) -> str:
    prompts = _open_prompts(state)
    if prompts:
        first = prompts[0]
        more = f" · {len(prompts) - 1} more" if len(prompts) > 1 else ""
        return (
            f"🟡 *Waiting* for {waiting_on(first.spec, state.actor, names)} · {_asks_for(first, flow)}{more}"
        )
    timers = sorted(timer.due_at for timer in state.timers.values() if timer.purpose == "wait")
    return f"🟡 *Waiting* until {date(timers[0])}" if timers else "🟡 *Waiting*"


def _ended(state: State, flow: FlowLike) -> str:
    icon, word = _ENDS.get(state.outcome or "failed", _ENDS["failed"])
    took = elapsed(clock.seconds_between(state.created_at, state.updated_at))
    after = "in" if state.outcome == "complete" else "after"
    parts = [f"{icon} *{word}* {after} {safe(took)}"]
    counted = Counter(run.status for run in state.nodes.values())
    parts += [f"{counted[status]} {word}" for status, word in _WORDS.items() if counted[status]]
    unknown = sum(1 for path in state.active if state.nodes[path].type not in WITHOUT_EFFECT)
    if unknown:
        parts.append(f"{unknown} unknown")
    never = sum(1 for node in flow.nodes if node.id not in state.nodes)
    if never:
        parts.append(f"{never} not run")
    if state.outcome == "failed" and state.error:
        message = safe(one_line(str(state.error.get("message") or state.error.get("type")), 200))
        return f"{' · '.join(parts)}\n{message}"
    return " · ".join(parts)


def _origin(state: State) -> str:
    return f"Started by {person(state.actor)} · {date(state.created_at)} · `{safe(state.session_id)}`"


def _inputs(values: Mapping[str, Json]) -> str:
    listed = [f"{name}: {_value(value)}" for name, value in list(values.items())[:_INPUTS]]
    more = len(values) - len(listed)
    return "\n".join(listed + ([f"… and {more} more"] if more else []))


def _value(value: Json) -> str:
    text = value if isinstance(value, str) else encode(value).decode()
    return one_line(text, 100)


# --- the nodes ---------------------------------------------------------------------------------------------


def _lines(state: State, flow: FlowLike, names: Mapping[str, str]) -> Sequence[str]:
    """A line for each node, in the flow's order; inputs that are asked for stand before them."""
    asked_inputs = [
        f"🙋 {_asks_for(prompt, flow)} · {_wait_words(prompt, state, names)}"
        for prompt in _open_prompts(state)
        if prompt.path not in state.nodes
    ]
    paths = [node.id for node in flow.nodes]
    known = set(paths)
    paths += [path for path in state.active if path not in known]
    waits = {prompt.path: prompt for prompt in _open_prompts(state)}
    timers = {timer.path: timer for timer in state.timers.values() if timer.purpose == "wait"}

    def line(path: str) -> str:
        return _line(state, flow, path, waits.get(path), timers.get(path), names)

    if len(paths) <= _WHOLE:
        return [*asked_inputs, *map(line, paths)]
    return [*asked_inputs, *_grouped(state, paths, line)]


def _grouped(state: State, paths: list[str], line: Callable[[str], str]) -> list[str]:
    """Many nodes: what is done becomes a count; what failed, what runs and what comes next keep their lines."""
    lines: list[str] = []
    behind = [path for path in paths if path in state.nodes and path not in state.active]
    quiet = [path for path in behind if state.nodes[path].status != "failed"]
    counted = Counter(state.nodes[path].status for path in quiet)
    if quiet:
        lines.append(" · ".join(f"{_ICONS[key]} {number} {_WORDS[key]}" for key, number in counted.items()))
    broken = [path for path in behind if state.nodes[path].status == "failed"]
    now = [path for path in paths if path in state.active]
    ahead = [path for path in paths if path not in state.nodes]
    for some, most, what in (
        (broken, _BEHIND, "failed"),
        (now, _BEHIND, "running"),
        (ahead, _AHEAD, "to come"),
    ):
        lines += [line(path) for path in some[:most]]
        if len(some) > most:
            lines.append(
                f"… {len(some) - most:,} more {'not run' if state.ended and some is ahead else what}"
            )
    return lines


def _line(
    state: State,
    flow: FlowLike,
    path: str,
    prompt: PromptRun | None,
    timer: TimerRun | None,
    names: Mapping[str, str],
) -> str:
    label = label_of(flow, path)
    run = state.nodes.get(path)
    if run is None:
        return f"▫️ {label} · not run" if state.ended else f"▫️ {label}"
    if state.ended and path in state.active:
        known = run.type in WITHOUT_EFFECT
        return f"🚫 {label} · withdrawn" if known else f"⚠️ {label} · not known whether it was done"
    if prompt is not None:
        icon = "⚠️" if run.status == "interrupted" else "🙋"
        return f"{icon} {label} · {_wait_words(prompt, state, names)}"
    if timer is not None:
        return f"⏲️ {label} · until {date(timer.due_at)}"
    return f"{_ICONS.get(run.status, '•')} {label}{_detail(run)}"


def _detail(run: NodeRun) -> str:
    if run.status == "skipped":
        return " · skipped"
    if run.status == "interrupted":
        return " · interrupted"
    if run.ended_at is None:
        return f" · since {date(run.started_at, '{time}')}" if run.started_at else ""
    took = elapsed(clock.seconds_between(run.started_at or run.ended_at, run.ended_at))
    if run.status != "failed":
        return f" · {safe(took)}"
    error = run.error or {}
    return f" · {safe(took)} · {safe(one_line(str(error.get('message') or error.get('type') or ''), 150))}"


def _wait_words(prompt: PromptRun, state: State, names: Mapping[str, str]) -> str:
    until = f", until {date(prompt.deadline)}" if prompt.deadline else ""
    return f"waiting for {waiting_on(prompt.spec, state.actor, names)}{until}"


def _asks_for(prompt: PromptRun, flow: FlowLike) -> str:
    named = prompt.spec.get("nodeName")
    return safe(clip(shown(str(named)), 60)) if named else label_of(flow, prompt.path)


def _open_prompts(state: State) -> list[PromptRun]:
    """Oldest first, as they were asked."""
    prompts = [state.prompts[key] for key in state.open_prompts]
    return sorted(prompts, key=lambda prompt: (prompt.requested_at, prompt.path))
