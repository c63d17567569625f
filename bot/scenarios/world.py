"""State that outlives a process: the time, the people, the outside effects, the visible thread; and the outcome that a
scenario's result of a node is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bot.scenarios.document import ErrorDoc, FakeDoc, PersonDoc, Scenario
from engine.decide.agents import memory
from engine.decide.policy import Gate
from engine.forms import normalize_form
from engine.journal.events import Event, decode_event
from engine.journal.queries import TURN
from engine.journal.records import KeptRow
from engine.language import timestamps
from engine.language.actors import Actor
from engine.language.codec import Json, encode
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, Outcome
from engine.nodes.types.registry import node_types, spec_of
from engine.storage.open import MemoryStore

TEAM = "T0SCENARIO"
CHANNEL = "C0SCENARIO"
SESSION = "session-5ce9a210"
BEGIN = "2026-01-05T09:00:00.000Z"
"""Default start of a scenario: a Monday morning."""

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
    """Outside effects, each once."""
    twice: list[str] = field(default_factory=list)
    """Effects that were repeated without an interruption."""
    outcomes: dict[tuple[str, int], Outcome] = field(default_factory=dict)
    """Outcomes by the idempotency key and the number of the run."""
    turns: dict[tuple[str, int], int] = field(default_factory=dict)
    """Index in the scenario's list that a run took."""
    taken: dict[str, int] = field(default_factory=dict)
    """Number of entries taken from a list."""
    said: dict[str, int] = field(default_factory=dict)
    """Number of script turns that an agent has reached."""
    posts: dict[str, str] = field(default_factory=dict)
    """Messages in the thread, by the path of their node, in the order in which they came."""

    @classmethod
    def of(cls, scenario: Scenario, home: Path) -> World:
        """The world before the scenario begins."""
        return cls(scenario, home, scenario.doc.start.at or BEGIN)

    @property
    def events(self) -> list[Event]:
        """The journal as it is stored."""
        if self.store.sessions.head(SESSION) is None:
            return []
        return [decode_event(row) for row in self.store.sessions.journal(SESSION)]

    @property
    def effects(self) -> list[Done]:
        """Return the effects outside of sayso, in order."""
        return [done for done in self.done if done.kind not in (TURN, *HARMLESS)]

    @property
    def notes(self) -> list[KeptRow]:
        """Return the notes that agents keep for later runs."""
        return [row for row in self.store.kept.rows(memory.NOTE) if memory.current(row, self.now)]

    def advance(self, moment: str) -> None:
        """The clock moves on, never back."""
        self.now = max(self.now, moment)

    def later(self, seconds: float) -> str:
        """The moment so many seconds from now."""
        return timestamps.after(self.now, seconds)

    def entry(self, name: str, key: str, number: int) -> int:
        """Return the index (from 0) in a list for this run of a node: the next one, and the same again after a kill."""
        if (key, number) not in self.turns:
            self.turns[key, number] = self.taken.get(name, 0)
            self.taken[name] = self.turns[key, number] + 1
        return self.turns[key, number]


def actors(people: Mapping[str, PersonDoc]) -> dict[str, Actor]:
    """The people of a scenario as the policy sees them: members of the workspace, with all that is known of them."""
    emails = {name: facts.email or f"{name.casefold()}@example.com" for name, facts in people.items()}
    return {
        name: Actor(
            id=facts.id or user_id(name),
            name=facts.name or name,
            team_id=TEAM,
            email=emails[name],
            manager=emails[facts.manager] if facts.manager else None,
            groups=frozenset(group.removeprefix("@") for group in facts.groups),
            in_channel=facts.in_channel,
            is_restricted=facts.guest,
            facts_known=True,
        )
        for name, facts in people.items()
    }


def user_id(name: str) -> str:
    """The Slack id of somebody of whom the file says none."""
    plain = name.upper()
    if not (plain.isascii() and plain.isalnum()):
        plain = hashlib.sha256(name.encode()).hexdigest()[:8].upper()
    return f"U0{plain}"


def gate_for(scenario: Scenario) -> Gate:
    """The policy, as in an installation whose admins the scenario names."""
    people = actors(scenario.people)
    admins = {people[name].id for name, facts in scenario.people.items() if facts.admin}
    return Gate(TEAM, frozenset({*admins, OPERATOR.id}))


def manager_of(scenario: Scenario, entry: str) -> str | None:
    """Return the manager of a person, given by id or e-mail address, as in the scenario."""
    for one in actors(scenario.people).values():
        if entry.casefold() in (one.id.casefold(), str(one.email).casefold()):
            return one.manager
    return None


def starter(scenario: Scenario) -> Actor:
    """Return the starter of the flow: the person or trigger that the file names, else the first of its people."""
    start = scenario.doc.start
    if start.trigger is not None:
        return Actor.itself(start.trigger)
    return actors(scenario.people)[start.as_ or next(iter(scenario.people))]


# --- results of nodes --------------------------------------------------------------------------------------


_DEFAULTS: Mapping[str, Mapping[str, Json]] = {
    "shell": {"stdout": "", "stderr": "", "exit_code": 0, "seconds": 0.0},
    "http": {"status": 200, "headers": {}, "body": "", "json": None},
}


def outcome_of(fake: FakeDoc, kind: str, config: Mapping[str, Json]) -> Outcome:
    """Return the outcome of a fake, as the real runner would report it."""
    if fake.interrupted is not None:
        return Interrupted("timeout" if fake.interrupted == "timeout" else "cut", "simulated by the scenario")
    if fake.asks is not None:
        told = fake.asks
        form = None if told.form is None else normalize_form(told.form)
        ask: dict[str, Json] = {"key": "asks", "message": told.message, "form": form, "url": told.url}
        return Interrupted("asks", "", {"server": config["server"], "asks": [ask], "answers": {}})
    if fake.error is not None:
        error = ErrorDoc(message=fake.error) if isinstance(fake.error, str) else fake.error
        return Failed(error.type, error.message, error.details)
    if kind not in _DEFAULTS:
        default = node_types()[kind].unknown_output if kind in node_types() else {}
        return Completed({**default, **fake.output} if isinstance(fake.output, dict) else fake.output)
    output = {**_DEFAULTS[kind], **(fake.output if isinstance(fake.output, dict) else {})}
    if kind == "shell":
        code, fine = output["exit_code"], config.get("ok_codes") or [0]
        if fine == "any" or code in fine:
            return Completed(output)
        return Failed("exit_code", f"ended with exit code {code}", output)
    if output["json"] is not None and not output["body"]:
        output["body"] = encode(output["json"]).decode()
    status, fine = output["status"], config.get("ok_status")
    if status in fine if fine else isinstance(status, int) and status < 400:
        return Completed(output)
    return Failed("http_status", f"{config.get('url')} was answered with {status}", output)


def unmentioned(kind: str, node_id: str, path: str, config: Mapping[str, Json]) -> list[str]:
    """Return advice for a node that the scenario does not mention."""
    example = {
        "shell": "{output: {stdout: ...}}",
        "http": "{output: {status: 200, json: {...}}}",
    }.get(kind, "{output: ...}")
    what = encode(config.get("run") or config.get("url") or config.get("call")).decode()
    where = "" if path == node_id else f" ({path})"
    reads = spec_of(kind).on_crash(config) == "again"
    return [
        f"`{node_id}`{where} would {'read' if reads else 'run'} now, but the scenario has no result for it.",
        *([f"It is of type {kind}: {what}"] if what != "null" else []),
        f"Write under `nodes`:   {node_id}: {example}   (or `done`, `{{error: ...}}`, a list of them, or `real`)",
    ]
