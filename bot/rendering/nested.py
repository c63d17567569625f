"""The lines of a node on a card, and below a container's line its content. Pure.

With one pass in progress, its nodes are indented below their container. With several, each has one line with its activity
or the people it waits for, waiting ones first, so that a phone shows them. Finished passes are only counted: a card
with a loop of a thousand passes is as short as one with three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bot.faces.marks import EMOJI, LISTENING, WITHDRAWN
from bot.faces.question import tally
from bot.rendering.agents import ASK, brief_input
from bot.rendering.blocks import INDENT
from bot.rendering.flow import WITHOUT_EFFECT, around, item_label, label_of, node_of
from bot.rendering.text import clip, date, mrkdwn, one_line, safe, shown, waiting_on
from engine.decide.outages import waited_out
from engine.flow import Flow, Node
from engine.journal.queries import TURN, agent_of, is_rejected, verdict
from engine.journal.state import COLLECT, AgentRun, Asked, ContainerRun, NodeRun, State, TimerRun, below
from engine.language import timestamps
from engine.language.counting import elapsed
from engine.messages.money import dollars
from engine.nodes.types.spec import Meter

_DEEPEST = 4
_MOST_INSIDE = 12
_BAR = 10


class Waits(NamedTuple):
    """A session with the questions and timers of its nodes, by path."""

    state: State
    flow: Flow
    names: Mapping[str, str]
    prompts: Mapping[str, Asked]
    timers: Mapping[str | None, TimerRun]
    meters: Mapping[str, Meter] = {}
    """Progress reported by running nodes."""

    @classmethod
    def of(cls, state: State, flow: Flow, names: Mapping[str, str]) -> Waits:
        """Return the waits of this state."""
        prompts = {prompt.path: prompt for prompt in open_prompts(state)}
        timers = {timer.path: timer for timer in state.timers.values() if timer.prompt_id is None}
        return cls(state, flow, names, prompts, timers)


def open_prompts(state: State) -> list[Asked]:
    """Oldest first, as they were asked."""
    prompts = [state.prompts[key] for key in state.open_prompts]
    return sorted(prompts, key=lambda prompt: (prompt.requested_at, prompt.number or 0, prompt.path))


def asks_for(state: State, prompt: Asked, flow: Flow) -> str:
    """Return the name of a prompt with its place: `rollout › us › Confirm`."""
    named = prompt.node_name
    label = safe(clip(shown(str(named)), 60)) if named else label_of(flow, prompt.path)
    if prompt.input:
        return label
    return " › ".join([*around(state, flow, prompt.path), label])


def wait_words(prompt: Asked, state: State, names: Mapping[str, str]) -> str:
    """Return the people a prompt waits for, and the state of the votes. Its own message has the deadline."""
    votes = mrkdwn(tally(prompt))
    return (
        f"waiting for {waiting_on(prompt, state.actor, names)}{f' · {votes}' if votes else ''}"
        f"{_next_clock(state, prompt)}"
    )


def _next_clock(state: State, prompt: Asked) -> str:
    """Return the next reminder or escalation of an open question, in a few words for the card; empty if there is none."""
    due = [
        (timer.due_at, timer.purpose)
        for timer in state.timers.values()
        if timer.prompt_id == prompt.prompt_id and timer.purpose in ("remind", "escalate")
    ]
    parts = ["escalated"] if prompt.escalated else []
    if due:
        at, purpose = min(due)
        parts.append(f"{'reminder' if purpose == 'remind' else 'escalation'} {date(at, '{time}')}")
    return f" · {', '.join(parts)}" if parts else ""


# --- lines -------------------------------------------------------------------------------------------------


def node_lines(waits: Waits, path: str, depth: int = 0) -> list[str]:
    """Return the line of a node, and those of its running content."""
    label = label_of(waits.flow, path)
    lines = [f"{INDENT * depth}{_line(waits, path, label)}"]
    container = waits.state.containers.get(path)
    if container is None or depth >= _DEEPEST:
        return lines
    if container.agent is not None:
        return lines + _calls(waits, path, container.agent, depth + 1)
    scopes = [scope for scope, frame in waits.state.frames.items() if frame.owner == path]
    if len(scopes) == 1:
        return lines + _inside(waits, scopes[0], depth + 1)
    return lines + _side_by_side(waits, path, depth + 1)


def _inside(waits: Waits, scope: str, depth: int) -> list[str]:
    """The nodes of the one pass that is in progress, in their order."""
    frame = waits.state.frames[scope]
    found = waits.flow.lists.get(frame.list_id)
    nodes = found.nodes if found is not None else ()
    paths = [frame.nodes.get(node.id) or f"{scope}/{node.id}" for node in nodes]
    if len(paths) <= _MOST_INSIDE:
        return [line for path in paths for line in node_lines(waits, path, depth)]
    state, indent = waits.state, INDENT * depth
    done = [path for path in paths if path in state.nodes and path not in state.active]
    now = [path for path in paths if path in state.active]
    ahead = len(paths) - len(done) - len(now)
    lines = [f"{indent}{EMOJI['completed']} {len(done)} done"] if done else []
    lines += [line for path in now[:_MOST_INSIDE] for line in node_lines(waits, path, depth)]
    lines += [f"{indent}… {len(now) - _MOST_INSIDE} more running"] if len(now) > _MOST_INSIDE else []
    return lines + ([f"{indent}{EMOJI['pending']} {ahead} to come"] if ahead else [])


def _calls(waits: Waits, path: str, agent: AgentRun, depth: int) -> list[str]:
    """Return the running tool calls of an agent: those that wait for people, and the others."""
    indent, lines = INDENT * depth, []
    for call_path, call in sorted(agent.calls.items(), key=lambda item: _ordinal(item[0])):
        name = safe(one_line(call.name.replace("__", " › "), 60))
        prompt = waits.prompts.get(call_path)
        inner = [one for at, one in waits.prompts.items() if at != call_path and below(call_path, at)]
        brief = safe(brief_input(call.name, call.input)).replace("`", "'")
        what = f"{name}: `{brief}`" if brief and call.name != ASK else name
        if prompt is not None:
            lines.append(
                f"{indent}{EMOJI['waiting']} {what} · {wait_words(prompt, waits.state, waits.names)}"
            )
        elif call_path in waits.state.nodes:
            lines.append(f"{indent}⚙️ {what}")
        for one in inner:
            asks = asks_for(waits.state, one, waits.flow)
            lines.append(f"{indent}{EMOJI['waiting']} {asks} · {wait_words(one, waits.state, waits.names)}")
    more = len(lines) - _MOST_INSIDE
    return lines[:_MOST_INSIDE] + ([f"{indent}… {more} more running"] if more > 0 else [])


def _ordinal(path: str) -> int:
    number = path.rpartition("[")[2].removesuffix("]")
    return int(number) if number.isdecimal() else 0


def _conversation(state: State, path: str, agent: AgentRun) -> str:
    """Return an agent's progress: its turn, its activity, its cost."""
    turns = [one for one in state.active if state.nodes[one].type == TURN and agent_of(state, one) == path]
    statuses = {state.nodes[one].status for one in turns}
    waiting = any(waited_out(state.nodes[one]) for one in turns)
    again = "waiting for the provider" if waiting else "trying again"
    doing = again if "retrying" in statuses else "thinking" if "started" in statuses else ""
    parts = [f"turn {agent.spent.turns + len(turns)}" if agent.spent.turns or turns else "", doing]
    parts.append("" if agent.spent.cost == "0" else dollars(agent.spent.cost))
    return "".join(f" · {part}" for part in parts if part)


def _side_by_side(waits: Waits, path: str, depth: int) -> list[str]:
    """Return one line for each activity in several passes: those that wait for people first."""
    state = waits.state
    inner = [one for one in state.active if one != path and below(path, one) and _stands_alone(state, one)]
    asked: dict[str, int] = {}
    for one, prompt in waits.prompts.items():
        asked.setdefault(agent_of(state, one) or one, prompt.number or 0)
    inner.sort(key=lambda one: (one not in asked, asked.get(one, 0), state.nodes[one].started_at or "", one))
    skip = len(around(state, waits.flow, f"{path}/x"))
    lines = []
    for one in inner[:_MOST_INSIDE]:
        place = [*around(state, waits.flow, one)[skip:], label_of(waits.flow, one)]
        lines.append(f"{INDENT * depth}{_line(waits, one, ' › '.join(place))}")
        if (container := state.containers.get(one)) is not None and container.agent is not None:
            lines += _calls(waits, one, container.agent, depth + 1)
    more = len(inner) - _MOST_INSIDE
    return lines + ([f"{INDENT * depth}… {more:,} more running"] if more > 0 else [])


def _stands_alone(state: State, path: str) -> bool:
    """True if an activity has a line of its own: an agent has one, with its calls below it; other containers have none."""
    if path in state.containers:
        return state.containers[path].agent is not None
    return agent_of(state, path) is None


def _line(waits: Waits, path: str, label: str) -> str:
    state, run = waits.state, waits.state.nodes.get(path)
    if run is None:
        return f"{EMOJI['pending']} {label}{' · not run' if state.ended else ''}"
    if state.ended and path in state.active:
        # A node that the end of the session found in progress.
        container = waits.state.containers.get(path)
        if container is not None:
            return f"{EMOJI['stopped']} {label} · stopped{_counted(container)}"
        if run.type in WITHOUT_EFFECT:
            return f"{WITHDRAWN} {label} · withdrawn"
        return f"{EMOJI['interrupted']} {label} · outcome unknown"
    prompt, timer = waits.prompts.get(path), waits.timers.get(path)
    if prompt is not None:
        icon = EMOJI["interrupted" if prompt.kind == "interrupted" else "waiting"]
        return f"{icon} {label} · {wait_words(prompt, state, waits.names)}"
    if path in state.containers:
        agent = state.containers[path].agent
        far = _counted(state.containers[path]) if agent is None else _conversation(state, path, agent)
        until = "" if timer is None else f" · until {date(timer.due_at)}"
        icon = LISTENING if timer is not None and timer.purpose == "followUp" else EMOJI["started"]
        return f"{icon} {label}{far}{until}"
    if timer is not None and run.status != "retrying":
        return f"{EMOJI['waiting']} {label} · until {date(timer.due_at)}"
    icon = EMOJI["rejected" if is_rejected(run) else run.status]
    return f"{icon} {label}{_detail(run, node_of(waits.flow, path), timer)}{_metered(waits.meters.get(path), run)}"


def _detail(run: NodeRun, node: Node | None, timer: TimerRun | None) -> str:
    if run.status == "skipped":
        return " · skipped"
    if run.status == "interrupted":
        return " · interrupted"
    if run.status == "retrying":
        # Number, time and reason of the next try. An outage of the provider is waited out for any number of tries.
        if waited_out(run):
            when = f", next try at {date(timer.due_at, '{time_secs}')}" if timer is not None else ""
            return f" · waiting for the provider{when} · {_error(run, 100)}"
        of = f" of {node.retry.attempts}" if node is not None and node.retry is not None else ""
        when = f" at {date(timer.due_at, '{time_secs}')}" if timer is not None else ""
        return f" · try {run.failures + 1}{of}{when} · {_error(run, 100)}"
    if run.ended_at is None:
        return f" · since {date(run.started_at, '{time}')}" if run.started_at else ""
    took = elapsed(timestamps.seconds_between(run.started_at or run.ended_at, run.ended_at))
    took += f" in {run.attempt} tries" if run.attempt > 1 else ""
    if run.status != "failed" or (run.type == "approval" and is_rejected(run)):
        return f" · {safe(took)}{_decided(run)}{_cost(run)}"
    return f" · {safe(took)}{_passes(run)} · {_error(run, 150)}"


def _passes(run: NodeRun) -> str:
    """Return the progress of a failed loop over items, and the item at which it failed."""
    if run.passes is None or "total" not in run.passes:
        return ""
    failed = [label for item in run.passes["items"].values() if (label := item_label(item))]
    done = ", ".join(filter(None, map(item_label, run.passes["done"])))
    named = f" ({safe(one_line(done, 120))})" if done else ""
    at = f" · failed at {safe(one_line(failed[-1], 80))}" if failed else ""
    return f"{at} · {run.passes['count']} of {run.passes['total']} done{named}"


def _metered(meter: Meter | None, run: NodeRun) -> str:
    """A bar, how much of how much, and the node's own words."""
    if meter is None or run.ended_at is not None:
        return ""
    filled = round(meter.share * _BAR)
    words = f" {safe(one_line(meter.text, 80))}" if meter.text else ""
    far = f"{meter.share:.0%}" if meter.total == 100 else f"{meter.done:g}/{meter.total:g}"
    return f" · {'▰' * filled}{'▱' * (_BAR - filled)} {far}{words}"


def _decided(run: NodeRun) -> str:
    """Return the people who decided an approval, named without a mention."""
    output = run.output or run.error
    if run.type != "approval" or not isinstance(output, dict):
        return ""
    if is_rejected(run):
        return f" · {safe(one_line(verdict(output), 150))}"
    people = [
        str(one.get("name") or one.get("id")) for one in output.get("by") or () if isinstance(one, dict)
    ]
    names = safe(one_line(", ".join(people), 120))
    return f" · approved by {names}" if people else " · approved"


def _cost(run: NodeRun) -> str:
    """Return the cost, if the output has it."""
    cost = run.output.get("cost") if isinstance(run.output, dict) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return ""
    return f" · {dollars(cost)}"


def _error(run: NodeRun, most: int) -> str:
    error = run.error or {}
    return safe(one_line(str(error.get("message") or error.get("type") or ""), most))


# --- progress ----------------------------------------------------------------------------------------------


def progress(state: State, flow: Flow, path: str) -> str:
    """A container with how far it is: `Rollout 3 of 5`."""
    return f"{label_of(flow, path)}{_how_far(state.containers[path])}"


def _counted(container: ContainerRun) -> str:
    """Return a container's progress for its own line, with the item if one pass is in progress."""
    far = _how_far(container)
    item = _current(container)
    # For branches it already says how many are done.
    several = container.running > 1 and container.kind != "parallel"
    parts = [far.strip(), item, f"{len(container.results)} done" if several else ""]
    return "".join(f" · {part}" for part in parts if part)


def _how_far(container: ContainerRun) -> str:
    match container.kind:
        case "foreach" if container.total:
            return f" {max(container.begun, 1)} of {container.total}"
        case "loop":
            return f" round {max(container.begun, 1)}"
        case "parallel":
            total = len(container.keys or ()) if container.total == COLLECT else container.total
            return f" {len(container.results)} of {total} branches"
        case _:
            return ""


def _current(container: ContainerRun) -> str:
    """The item or case that the one pass in progress is about."""
    if container.running != 1:
        return ""
    if container.kind == "switch":
        keys: Sequence[str] = container.keys or ()
        return safe(one_line(keys[0], 40)) or "default" if keys else ""
    # The latest one that began: with one in progress it is this one, unless an earlier one takes longer.
    index = next((n for n in range(container.begun - 1, -1, -1) if n not in container.results), None)
    items = container.items
    if index is None or not items or index >= len(items):
        return ""
    return safe(one_line(item_label(items[index]), 40))
