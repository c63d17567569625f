"""The steps of a run, each a line, and below a container's line its content. Pure.

With one pass in progress, its nodes are indented below their container. With several, each has one line with its activity
or the people it waits for, waiting ones first, so that a phone shows them. Finished passes are only counted: a card
with a loop of a thousand passes is as short as one with three.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bot.faces.marks import EMOJI, LISTENING, WITHDRAWN
from bot.faces.places import WITHOUT_EFFECT, around, asks_for, item_label, label_of, node_of
from bot.faces.question import asked, tally
from bot.faces.tools import ASK, brief_input
from bot.faces.words import Code, Ids, Part, Said, Step, When, Whom, Words, joined
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
    ids: Ids
    prompts: Mapping[str, Asked]
    timers: Mapping[str | None, TimerRun]
    meters: Mapping[str, Meter]
    """Progress reported by running nodes."""

    @classmethod
    def of(cls, state: State, flow: Flow, ids: Ids, meters: Mapping[str, Meter]) -> Waits:
        """Return the waits of this state."""
        prompts = {prompt.path: prompt for prompt in open_prompts(state)}
        timers = {timer.path: timer for timer in state.timers.values() if timer.prompt_id is None}
        return cls(state, flow, ids, prompts, timers, meters)

    def asks(self, prompt: Asked, label: Words = (), depth: int = 0) -> Step:
        """A question with the people it waits for, the state of the votes, and its next reminder or escalation; its own
        message has the deadline. Without a label its place is its name."""
        label = label or (Said(asks_for(self.state, prompt, self.flow)),)
        due = [
            (timer.due_at, timer.purpose)
            for timer in self.state.timers.values()
            if timer.prompt_id == prompt.prompt_id and timer.purpose in ("remind", "escalate")
        ]
        clock: Words = ()
        if due:
            at, purpose = min(due)
            clock = (f"{'reminder' if purpose == 'remind' else 'escalation'} ", When(at, "clock"))
        clocks = joined(("escalated" if prompt.escalated else "", clock), ", ")
        waiting = ("waiting for ", awaited(prompt, self.state, self.ids))
        sign = EMOJI["interrupted" if prompt.kind == "interrupted" else "waiting"]
        return Step(sign, label, joined((waiting, tally(prompt), clocks), " · "), depth)


def open_prompts(state: State) -> list[Asked]:
    """Oldest first, as they were asked."""
    prompts = [state.prompts[key] for key in state.open_prompts]
    return sorted(prompts, key=lambda prompt: (prompt.requested_at, prompt.number or 0, prompt.path))


def awaited(prompt: Asked, state: State, ids: Ids = None) -> Whom:
    """Return the people that an open prompt waits for, who are named without being called."""
    return Whom(asked(prompt, state.actor, ids), state.actor, ids, call=False)


# --- lines -------------------------------------------------------------------------------------------------


def steps_at(waits: Waits, path: str, depth: int = 0) -> list[Step]:
    """Return the line of a node, and those of its running content."""
    lines = [_step(waits, path, label_of(waits.flow, path), depth)]
    container = waits.state.containers.get(path)
    if container is None or depth >= _DEEPEST:
        return lines
    if container.agent is not None:
        return lines + _calls(waits, container.agent, depth + 1)
    scopes = [scope for scope, frame in waits.state.frames.items() if frame.owner == path]
    inside = (
        _inside(waits, scopes[0], depth + 1) if len(scopes) == 1 else _side_by_side(waits, path, depth + 1)
    )
    return lines + inside


def _inside(waits: Waits, scope: str, depth: int) -> list[Step]:
    """The nodes of the one pass that is in progress, in their order."""
    frame, state = waits.state.frames[scope], waits.state
    found = waits.flow.lists.get(frame.list_id)
    nodes = found.nodes if found is not None else ()
    paths = [frame.nodes.get(node.id) or f"{scope}/{node.id}" for node in nodes]
    if len(paths) <= _MOST_INSIDE:
        return [line for path in paths for line in steps_at(waits, path, depth)]
    now = [path for path in paths if path in state.active]
    done = sum(path in state.nodes for path in paths) - len(now)
    ahead = len(paths) - done - len(now)
    return [
        *([Step(EMOJI["completed"], (f"{done} done",), (), depth)] if done else []),
        *(line for path in now[:_MOST_INSIDE] for line in steps_at(waits, path, depth)),
        *_more(len(now), depth),
        *([Step(EMOJI["pending"], (f"{ahead} to come",), (), depth)] if ahead else []),
    ]


def _calls(waits: Waits, agent: AgentRun, depth: int) -> list[Step]:
    """Return the running tool calls of an agent, in their order, each with the questions inside it."""

    def ordinal(path: str) -> int:
        number = path.rpartition("[")[2].removesuffix("]")
        return int(number) if number.isdecimal() else 0

    lines: list[Step] = []
    for path in sorted(agent.calls, key=ordinal):
        call, prompt = agent.calls[path], waits.prompts.get(path)
        brief = "" if call.name == ASK else brief_input(call.name, call.input)
        what: Words = (Said(call.name.replace("__", " › "), 60), *((": ", Code(brief)) if brief else ()))
        if prompt is not None:
            lines.append(waits.asks(prompt, what, depth))
        elif path in waits.state.nodes:
            lines.append(Step("⚙️", what, (), depth))
        inner = (one for at, one in waits.prompts.items() if at != path and below(path, at))
        lines += [waits.asks(one, depth=depth) for one in inner]
    return [*lines[:_MOST_INSIDE], *_more(len(lines), depth)]


def _side_by_side(waits: Waits, path: str, depth: int) -> list[Step]:
    """Return one line for each activity in several passes: those that wait for people first."""
    state, asked_at = waits.state, dict[str, int]()
    for one, prompt in waits.prompts.items():
        asked_at.setdefault(agent_of(state, one) or one, prompt.number or 0)

    def stands_alone(one: str) -> bool:
        # An agent has a line of its own, with its calls below it; other containers have none.
        if one in state.containers:
            return state.containers[one].agent is not None
        return agent_of(state, one) is None

    inner = [one for one in state.active if one != path and below(path, one) and stands_alone(one)]
    inner.sort(
        key=lambda one: (one not in asked_at, asked_at.get(one, 0), state.nodes[one].started_at or "", one)
    )
    skip = len(around(state, waits.flow, f"{path}/x"))
    lines: list[Step] = []
    for one in inner[:_MOST_INSIDE]:
        place = [*around(state, waits.flow, one)[skip:], label_of(waits.flow, one)]
        lines.append(_step(waits, one, " › ".join(place), depth))
        if (container := state.containers.get(one)) is not None and container.agent is not None:
            lines += _calls(waits, container.agent, depth + 1)
    return [*lines, *_more(len(inner), depth)]


def _more(count: int, depth: int) -> list[Step]:
    """The count of what is running beyond the lines that are shown of it."""
    more = count - _MOST_INSIDE
    return [Step("", (f"… {more:,} more running",), (), depth)] if more > 0 else []


def _step(waits: Waits, path: str, name: str, depth: int) -> Step:
    state, run = waits.state, waits.state.nodes.get(path)

    def told(sign: str, *parts: Part | Words) -> Step:
        return Step(sign, (Said(name),), joined(parts, " · "), depth)

    if run is None:
        return told(EMOJI["pending"], "not run" if state.ended else "")
    container = state.containers.get(path)
    if state.ended and path in state.active:
        # A node that the end of the session found in progress.
        if container is not None:
            return told(EMOJI["stopped"], "stopped", *_counted(container))
        if run.type in WITHOUT_EFFECT:
            return told(WITHDRAWN, "withdrawn")
        return told(EMOJI["interrupted"], "outcome unknown")
    prompt, timer = waits.prompts.get(path), waits.timers.get(path)
    if prompt is not None:
        return waits.asks(prompt, (Said(name),), depth)
    until: Words = () if timer is None else ("until ", When(timer.due_at))
    if container is not None:
        agent = container.agent
        far = _counted(container) if agent is None else _conversation(state, path, agent)
        listens = timer is not None and timer.purpose == "followUp"
        return told(LISTENING if listens else EMOJI["started"], *far, until)
    if timer is not None and run.status != "retrying":
        return told(EMOJI["waiting"], until)
    sign = EMOJI["rejected" if is_rejected(run) else run.status]
    return told(
        sign,
        *_detail(run, node_of(waits.flow, path), timer, _ending(state)),
        _metered(waits.meters.get(path), run),
    )


def _conversation(state: State, path: str, agent: AgentRun) -> Iterator[str]:
    """An agent's progress: its turn, its activity, its cost."""
    turns = [one for one in state.active if state.nodes[one].type == TURN and agent_of(state, one) == path]
    statuses = {state.nodes[one].status for one in turns}
    if agent.spent.turns or turns:
        yield f"turn {agent.spent.turns + len(turns)}"
    if "retrying" in statuses:
        waiting = any(waited_out(state.nodes[one]) for one in turns)
        yield "waiting for the provider" if waiting else "trying again"
    elif "started" in statuses:
        yield "thinking"
    if agent.spent.cost != "0":
        yield dollars(agent.spent.cost)


def _ending(state: State) -> str:
    """The error with which a run failed, which its first lines say; empty if it did not fail."""
    error = (state.error or {}) if state.outcome == "failed" else {}
    return str(error.get("message") or error.get("type") or "")


def _detail(run: NodeRun, node: Node | None, timer: TimerRun | None, said: str) -> Iterator[Part | Words]:
    """Describe the state of a node beside its name, without an error that is `said` above it."""
    error = run.error or {}
    why = str(error.get("message") or error.get("type") or "")
    if run.status in ("skipped", "interrupted"):
        yield run.status
    elif run.status == "retrying":
        # Number, time and reason of the next try. An outage of the provider is waited out for any number of tries.
        when: Words = () if timer is None else (When(timer.due_at, "second"),)
        if waited_out(run):
            yield ("waiting for the provider", *((", next try at ", *when) if when else ()))
        else:
            of = f" of {node.retry.attempts}" if node is not None and node.retry is not None else ""
            yield (f"try {run.failures + 1}{of}", *((" at ", *when) if when else ()))
        yield Said(why, 100)
    elif run.ended_at is None:
        yield ("since ", When(run.started_at, "clock")) if run.started_at else ""
    else:
        tries = f" in {run.attempt} tries" if run.attempt > 1 else ""
        took = elapsed(timestamps.seconds_between(run.started_at or run.ended_at, run.ended_at))
        yield Said(took + tries)
        if run.status != "failed" or (run.type == "approval" and is_rejected(run)):
            yield _decided(run)
            cost = run.output.get("cost") if isinstance(run.output, dict) else None
            yield dollars(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else ""
        else:
            yield from _passes(run)
            yield Said(why, 150) if why != said else ""


def _passes(run: NodeRun) -> Iterator[Words]:
    """The item at which a loop over items failed, and how many it had finished."""
    if run.passes is None or "total" not in run.passes:
        return
    failed = [label for item in run.passes["items"].values() if (label := item_label(item))]
    if failed:
        yield ("failed at ", Said(failed[-1], 80))
    done = ", ".join(filter(None, map(item_label, run.passes["done"])))
    named = (" (", Said(done, 120), ")") if done else ()
    yield (f"{run.passes['count']} of {run.passes['total']} done", *named)


def _metered(meter: Meter | None, run: NodeRun) -> Words:
    """A bar, how much of how much, and the node's own words."""
    if meter is None or run.ended_at is not None:
        return ()
    filled = round(meter.share * _BAR)
    far = f"{meter.share:.0%}" if meter.total == 100 else f"{meter.done:g}/{meter.total:g}"
    said = (" ", Said(meter.text, 80)) if meter.text else ()
    return (f"{'▰' * filled}{'▱' * (_BAR - filled)} {far}", *said)


def _decided(run: NodeRun) -> Part | Words:
    """The people who decided an approval, named without a mention."""
    output = run.output or run.error
    if run.type != "approval" or not isinstance(output, dict):
        return ""
    if is_rejected(run):
        return Said(verdict(output), 150)
    people = [
        str(one.get("name") or one.get("id")) for one in output.get("by") or () if isinstance(one, dict)
    ]
    return ("approved by ", Said(", ".join(people), 120)) if people else "approved"


# --- progress ----------------------------------------------------------------------------------------------


def progress(state: State, flow: Flow, path: str) -> Words:
    """A container with how far it is: `Rollout 3 of 5`."""
    return joined((Said(label_of(flow, path)), _how_far(state.containers[path])), " ")


def _counted(container: ContainerRun) -> Iterator[Part]:
    """A container's progress for its own line, with the item or case if one pass is in progress."""
    yield _how_far(container)
    if container.running == 1 and container.kind == "switch":
        yield Said(container.keys[0] or "default", 40) if container.keys else ""
    elif container.running == 1:
        # The latest one that began: with one in progress it is this one, unless an earlier one takes longer.
        index = next((n for n in range(container.begun - 1, -1, -1) if n not in container.results), None)
        items = container.items or []
        item = item_label(items[index]) if index is not None and index < len(items) else ""
        yield Said(item, 40) if item else ""
    elif container.running > 1 and container.kind != "parallel":  # branches already say how many are done
        yield f"{len(container.results)} done"


def _how_far(container: ContainerRun) -> str:
    match container.kind:
        case "foreach" if container.total:
            return f"{max(container.begun, 1)} of {container.total}"
        case "loop":
            return f"round {max(container.begun, 1)}"
        case "parallel":
            total = len(container.keys or ()) if container.total == COLLECT else container.total
            return f"{len(container.results)} of {total} branches"
        case _:
            return ""
