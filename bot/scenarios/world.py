"""What outlives a process: the time, who people are, what was done outside, and what can be seen in the thread."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bot.scenarios.document import PersonDoc
from bot.scenarios.scenario import Scenario
from engine.decide.policy import Gate
from engine.journal.events import Event, decode_event
from engine.journal.folds.agents import TURN
from engine.language import timestamps
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.nodes.runtime.runner import Outcome
from engine.storage.memory import MemoryStore

TEAM = "T0SCENARIO"
CHANNEL = "C0SCENARIO"
SESSION = "session-5ce9a210"
BEGIN = "2026-01-05T09:00:00.000Z"
"""When a scenario begins unless it says so: a Monday morning."""

HARMLESS = ("read_file", "write_file")
"""Types that work in the session's own folder only, which a scenario throws away: they run unless it says otherwise."""

THREAD: dict[str, Json] = {
    "key": f"{TEAM}:{CHANNEL}:1767603600.000100",
    "team": TEAM,
    "channel": CHANNEL,
    "threadTs": "1767603600.000100",
}
"""The thread that the session lives in."""

OPERATOR = Actor("U0OPERATOR", name="operator", team_id=TEAM, in_channel=True, facts_known=True)
"""Answers, after a kill, that a step that was cut runs again. An admin, and not one of the people."""


@dataclass(frozen=True)
class Done:
    """Something that was done: by which node, for the how-many-th time of this node at this place."""

    path: str
    node_id: str
    kind: str
    number: int
    config: Json
    life: int


@dataclass
class World:
    """Everything that a killed process leaves behind."""

    scenario: Scenario
    home: Path
    now: str
    store: MemoryStore = field(default_factory=MemoryStore)
    lives: int = 0
    done: list[Done] = field(default_factory=list)
    """What was done outside, each thing once."""
    twice: list[str] = field(default_factory=list)
    """What was done again although nothing had cut it."""
    outcomes: dict[tuple[str, int], Outcome] = field(default_factory=dict)
    """What came of it, by the idempotency key and the number of the run."""
    turns: dict[tuple[str, int], int] = field(default_factory=dict)
    """Which entry of the scenario's list a run took."""
    taken: dict[str, int] = field(default_factory=dict)
    """How many entries of a list were taken."""
    said: dict[str, int] = field(default_factory=dict)
    """How many turns of its script an agent has come to."""
    posts: dict[str, str] = field(default_factory=dict)
    """Messages in the thread, by the path of their node, in the order in which they came."""

    @classmethod
    def of(cls, scenario: Scenario, home: Path) -> World:
        """The world before the scenario begins."""
        return cls(scenario, home, scenario.doc.start.at or BEGIN)

    @property
    def events(self) -> list[Event]:
        """The journal as it is stored."""
        if self.store.head(SESSION) is None:
            return []
        return [decode_event(row) for row in self.store.journal(SESSION)]

    @property
    def effects(self) -> list[Done]:
        """What was done outside of sayso, in order."""
        return [done for done in self.done if done.kind not in (TURN, *HARMLESS)]

    def advance(self, moment: str) -> None:
        """The clock moves on, never back."""
        self.now = max(self.now, moment)

    def later(self, seconds: float) -> str:
        """The moment so many seconds from now."""
        return timestamps.after(self.now, seconds)

    def entry(self, name: str, key: str, number: int) -> int:
        """Which entry of a list (from 0) this run of a node takes: the next one, and the same again after a kill."""
        if (key, number) not in self.turns:
            self.turns[key, number] = self.taken.get(name, 0)
            self.taken[name] = self.turns[key, number] + 1
        return self.turns[key, number]


def actors(people: Mapping[str, PersonDoc]) -> dict[str, Actor]:
    """The people of a scenario as the policy sees them: members of the workspace, with all that is known of them."""
    return {name: _actor(name, facts) for name, facts in people.items()}


def _actor(name: str, facts: PersonDoc) -> Actor:
    return Actor(
        id=facts.id or user_id(name),
        name=facts.name or name,
        team_id=TEAM,
        email=facts.email or f"{name.casefold()}@example.com",
        groups=frozenset(group.removeprefix("@") for group in facts.groups),
        in_channel=facts.in_channel,
        is_restricted=facts.guest,
        facts_known=True,
    )


def user_id(name: str) -> str:
    """The Slack id of somebody of whom the file says none."""
    plain = "".join(letter for letter in name.upper() if letter.isascii() and letter.isalnum())
    return (
        f"U0{plain}"
        if plain == name.upper()
        else f"U0{hashlib.sha256(name.encode()).hexdigest()[:8].upper()}"
    )


def gate_for(scenario: Scenario) -> Gate:
    """The policy, as in an installation whose admins the scenario names."""
    people = actors(scenario.people)
    admins = {people[name].id for name, facts in scenario.people.items() if facts.admin}
    return Gate(TEAM, frozenset({*admins, OPERATOR.id}))


def starter(scenario: Scenario) -> Actor:
    """Who starts the flow: the person or trigger that the file names, else the first of its people."""
    start = scenario.doc.start
    if start.trigger is not None:
        return Actor.itself(start.trigger)
    return actors(scenario.people)[start.as_ or next(iter(scenario.people))]
