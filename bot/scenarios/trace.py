"""What counts of a run, and in what a run with a kill differs from the one without.

Not compared is what only kills and claims put into a journal: interruptions, starts that are repeated, questions
about them, and ids that are made from numbers of events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bot.scenarios.scenario import described
from bot.scenarios.world import World
from engine.flow import Flow
from engine.journal.events import Event
from engine.journal.history import tree
from engine.journal.state import State
from engine.language.codec import Json, canonical

_ID = re.compile(r"\b(?:prompt|local)-[0-9a-f]{12}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_OF_A_CLAIM = ("seq", "timestamp", "epoch", "attempt", "key", "promptId", "timerId")
_SHORT = 120


@dataclass(frozen=True)
class Story:
    """All of a run that a kill must not change, as names and values."""

    parts: Mapping[str, Json]


def story(state: State, events: Sequence[Event], world: World) -> Story:
    """The story of a run as it stands."""
    parts: dict[str, Json] = {"the session": state.status}
    for entry in tree(events, world.scenario.flow).walk():
        if entry.kind != "node" or not entry.path:
            continue
        parts[entry.path] = entry.status
        if entry.output is not None:
            parts[f"the output of {entry.path}"] = entry.output
        if entry.error:
            parts[f"the error of {entry.path}"] = entry.error
    parts |= _answers(state) | _conversations(events)
    for done in world.done:
        parts[f"what {done.path} did{_nth(done.number)}"] = done.config
    for path, text in world.posts.items():
        parts[f"what {path} posted"] = text
    return Story({name: _steady(part, world) for name, part in parts.items()})


def _answers(state: State) -> dict[str, Json]:
    """What people answered and voted, by where they were asked; not about what a kill had cut."""
    found: dict[str, Json] = {}
    for prompt in sorted(state.prompts.values(), key=lambda prompt: prompt.number or 0):
        if prompt.kind == "interrupted":
            continue
        base, count = f"the answer to {prompt.path}", 1
        while (name := f"{base}{_nth(count - 1)}") in found:
            count += 1
        votes = [{key: value for key, value in vote.items() if key != "key"} for vote in prompt.votes]
        given = None if prompt.answer is None else {**prompt.answer, "votes": votes}
        found[name] = {
            "status": prompt.status,
            "answer": given,
            "by": prompt.actor,
            "votes": votes,
            "reminders": prompt.reminders,
            "escalated": list(prompt.escalated),
        }
    return found


def _conversations(events: Sequence[Event]) -> dict[str, Json]:
    """What was said to and by agents, message by message."""
    found: dict[str, Json] = {}
    for event in events:
        if event.type.startswith("agent:"):
            wire = {name: value for name, value in event.to_wire().items() if name not in _OF_A_CLAIM}
            base, count = f"the conversation at {event.path}", 0
            while (name := f"{base}{_nth(count)}") in found:
                count += 1
            found[name] = wire
    return found


def _nth(number: int) -> str:
    return f", {number + 1}." if number else ""


def _steady(value: Json, world: World) -> Json:
    """The value without what is made anew for every run: ids, its folder, and times where a retry has jitter."""
    patterns = {_ID: "(id)", re.compile(re.escape(str(world.home))): "(home)"}
    if _has_jitter(world.scenario.flow):
        patterns[_TIME] = "(time)"
    return _without(value, patterns)


def _has_jitter(flow: Flow) -> bool:
    return any(
        node.retry is not None and node.retry.jitter > 0
        for nodes in flow.lists.values()
        for node in nodes.nodes
    )


def _without(value: Json, patterns: Mapping[re.Pattern[str], str]) -> Json:
    if isinstance(value, str):
        for pattern, instead in patterns.items():
            value = pattern.sub(instead, value)
        return value
    if isinstance(value, list):
        return [_without(item, patterns) for item in value]
    if isinstance(value, dict):
        return {name: _without(item, patterns) for name, item in value.items()}
    return value


def changes(plain: Story, killed: Story) -> Iterator[str]:
    """In what a killed run differs, a line for each part."""
    for name in {**plain.parts, **killed.parts}:
        before, after = plain.parts.get(name), killed.parts.get(name)
        if name not in killed.parts:
            yield f"{name}: {_shown(before)}, and nothing after the kill"
        elif name not in plain.parts:
            yield f"{name}: {_shown(after)}, and nothing without the kill"
        elif canonical(before) != canonical(after):
            yield f"{name}: {_shown(after)}, and not {_shown(before)}"


def _shown(value: Json) -> str:
    text = " ".join(described(value).split())
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
