"""Messages and files from people to an agent, and how long it listens after its answer. Pure.

Messages from people who may steer the session are instructions, in `<message from=…>`. If the agent listens to its
thread, other people's messages are data, in `<overheard from=…>`, and wake nobody. Neither can pose as the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.decide.agents.tool_results import person, wrapped
from engine.decide.commands import Steer
from engine.decide.step import Step
from engine.journal import events as ev
from engine.journal.grammar import timeout_id
from engine.journal.queries import TURN, agent_at, agent_of, agents_under_way, is_overheard, rest_id
from engine.journal.state import State
from engine.language import timestamps
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.errors import AgentOver
from engine.messages.messages import text_block

MOST_OVERHEARD = 32 * 1024
"""Most characters of overheard messages held for an agent's next call; later ones are dropped."""

_LEFT_OUT = "<overheard>\n(More was said and is left out.)\n</overheard>"


def hear(step: Step, said: Steer) -> None:
    """Add a message from someone who may steer to the next call of the agent it addresses, or else of the newest one.
    Raises `AgentOver`: a message to one agent is never given to another."""
    paths = agents_under_way(step.state)
    if said.to is not None and said.to not in paths:
        name = said.to.rpartition("/")[2]
        raise AgentOver(f"{name} has ended or has not begun, so no agent received this.")
    path = said.to or paths[-1]
    if _guest(said.actor) and _policy(step, path, "guests") == "data":
        _say(step, path, said, "overheard")
        return
    node = step.node(path)
    rested = rest_id(step.state, path) in step.state.timers
    _say(step, path, said, "message")
    if rested:
        step.wake(path)
        # A follow-up gets as much time as the first answer had.
        timer_id = timeout_id(step.state, path)
        if node.timeout is not None and timer_id not in step.state.timers:
            due_at = timestamps.after(step.facts.now, node.timeout)
            step.set_timer(path, timer_id, due_at, "timeout")
    if step.state.phase in ("running", "waiting"):
        try_now(step, path)


def overhear(step: Step, said: Steer) -> bool:
    """Give a message from someone who may not steer to each agent that listens to its thread; True if there is one."""
    told = [
        path
        for path in agents_under_way(step.state)
        if hears_others(
            step.state.nodes[path].input, said.actor, heard_in(step.state, step.facts.agents.listens)
        )
    ]
    for path in told:
        _say(step, path, said, "overheard")
    return bool(told)


LEVELS = ("mention", "requester", "thread")
"""Levels of listening, from least to most."""


def heard_in(state: State, bounds: Mapping[str, str]) -> str:
    """Return the most that the installation's settings let agents hear at this session's place."""
    channel = str((state.thread or {}).get("channel") or "")
    place = "dm" if channel.startswith("D") else channel
    return bounds.get(place) or bounds.get("") or LEVELS[-1]


def listens(config: Mapping[str, Json] | None, most: str) -> str:
    """Return the level at which an agent with this configuration listens, at most `most`."""
    wanted = (config or {}).get("listen")
    return min(wanted if wanted in LEVELS else "requester", most, key=LEVELS.index)


def hears_others(config: Mapping[str, Json] | None, actor: Actor, most: str) -> bool:
    """True if an agent with this configuration overhears this person, who may not steer it."""
    config = config or {}
    if listens(config, most) != "thread" or actor.in_channel is not True:
        return False
    unknown = not actor.facts_known or actor.deleted or actor.edited or actor.is_bot or actor.is_app
    return not unknown and not (_guest(actor) and config.get("guests") == "refuse")


def _guest(actor: Actor) -> bool:
    return actor.is_restricted or actor.is_ultra_restricted or actor.is_stranger


def _policy(step: Step, path: str, name: str) -> Json:
    return (step.state.nodes[path].input or {}).get(name)


def _say(step: Step, path: str, said: Steer, mark: str) -> None:
    overheard = mark == "overheard"
    blocks = list(_blocks(said, mark))
    if overheard:
        waiting = [block["text"] for block in agent_at(step.state, path).pending if is_overheard(block)]
        if _LEFT_OUT in waiting:
            return
        if sum(map(len, [*waiting, said.text])) > MOST_OVERHEARD:
            blocks = [text_block(_LEFT_OUT)]
    step.emit_at(
        path,
        ev.AgentMessage,
        role="user",
        source="person",
        content=blocks,
        actor=said.actor.record(),
        key=said.key,
        overheard=True if overheard else None,
    )


def _blocks(said: Steer, mark: str) -> Iterator[Json]:
    """The words, with the names of the files that came with them, and the files that can be read."""
    given = [str(file["name"]) for file in said.files if "path" in file]
    unread = [f"{file['name']}: {file['unread']}" for file in said.files if "path" not in file]
    told = {"from": person(said.actor.record())}
    if given:
        told["files"] = ", ".join(given)
    if unread:
        told["unread"] = "; ".join(unread)
    yield text_block(wrapped(mark, said.text, **told))
    for file in said.files:
        if "path" in file:
            named = {name: file[name] for name in ("path", "name")}
            yield {"type": "sayso_file", **named, "mediaType": file.get("type")}


def try_now(step: Step, owner: str) -> None:
    """Make the call at once that an agent is waiting to make again."""
    for path in sorted(step.state.active):
        run = step.state.nodes[path]
        if run.type == TURN and run.status == "retrying" and agent_of(step.state, path) == owner:
            for timer in list(step.state.timers.values()):
                if (timer.path, timer.purpose) == (path, "retry"):
                    step.emit(ev.TimerFired, path=path, timer_id=timer.timer_id)
                    step.wake(path)


# --- after the answer --------------------------------------------------------------------------------------


def rests(step: Step, path: str) -> bool:
    """True if the agent at `path`, which has answered, listens for follow-ups. Starts listening if its flow says so and
    people can write to it."""
    timer_id = rest_id(step.state, path)
    if timer_id in step.state.timers:
        return True
    seconds = _policy(step, path, "follow_up")
    people = "/" not in path and bool((step.state.thread or {}).get("channel"))
    if not seconds or not people or step.state.phase != "running":
        return False
    due_at = timestamps.after(step.facts.now, float(seconds))
    step.set_timer(path, timer_id, due_at, "followUp")
    return True
