"""Entry × actor × state of the question, over every action: no wrong accept, no wrong refusal, nobody else is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.matrix.cast import FLOWS, RUNNERS, id_of, settle_in
from tests.matrix.doors import CONTROLS, DOORS, STARTED, STARTS, Door, somebody
from tests.matrix.stage import Stage, set_up
from tests.matrix.table import GETS_IN, MEMBERS, STATES, comes, gets_in, has_nonce
from tests.support.inprocess import Called, Town, play, town
from tests.support.proving import PROVE

BUTTONS = "Please use the buttons to answer this"
"""The one hint that may be in the thread: text where buttons are pressed."""
STANDS = " ago."


@dataclass
class Tally:
    """What was found."""

    cells: int = 0
    accepted: int = 0
    wrong: list[str] = field(default_factory=list)


def actor_of(event: Any) -> str | None:
    """The id of whoever an event says did it."""
    actor = getattr(event, "actor", None)
    return actor.get("id") if isinstance(actor, dict) else None


async def sessions(place: Town) -> int:
    """How many runs there are."""
    return len(place.store.sessions.heads(limit=1_000_000))


async def cell(stage: Stage, door: Door, state: str, name: str, expected: bool) -> tuple[bool, list[str]]:
    """Somebody comes to a door: whether they got in, and what is wrong about it."""
    place = stage.town
    before, count, since = len(await stage.events()), await sessions(place), len(place.calls)
    answer = await door.act(stage, name, state)
    await place.settle()
    events = (await stage.events())[before:]
    started = await sessions(place) - count
    did = [event for event in events if event.type in door.does]
    got_in = bool(did) or (door.does == STARTED and started == 1)
    problems = []
    if got_in != expected:
        problems.append("got in" if got_in else f"was refused: {_words(place, since, answer)}")
    if got_in and did and actor_of(did[0]) not in (id_of(name), f"local:{name}", None):
        problems.append(f"was taken for {actor_of(did[0])}")
    if not got_in:
        if events or started:
            problems.append(f"changed something: {[event.type for event in events]}, {started} runs")
        problems += _telling(stage, door, name, since, answer)
    return got_in, problems


def _telling(stage: Stage, door: Door, name: str, since: int, answer: Any) -> list[str]:
    """What is wrong about how a refusal was told."""
    place = stage.town
    problems = [f"was told to everybody: {text}" for text in _public(place, since, door, name)]
    others = [
        call for call in place.calls[since:]
        if call.method == "chat.postEphemeral" and call.args.get("user") != id_of(name)
    ]  # fmt: skip
    problems += [f"was told to {call.args.get('user')}" for call in others]
    if door.kind in ("press", "modal", "cli") and not (
        answer or _private(place, somebody(place, name).id, since)
    ):
        problems.append("was told nothing")
    return problems


def _public(place: Town, since: int, door: Door, name: str) -> list[str]:
    """What everybody was told since then, but for what is said in public by design."""
    texts = [str(call.args.get("text", ""))[:100] for call in place.posted(since)]
    if door.kind == "start":
        # Whoever mentions the bot is answered in the thread of that message.
        return [text for text in texts if "started *" in text]
    if door.kind == "message":
        # Whoever mentions the bot in a thread is told where it is, and everybody may see that.
        return [t for t in texts if not t.startswith(BUTTONS) and not (STANDS in t and name in MEMBERS)]
    return texts


def _private(place: Town, user: str, since: int) -> list[Called]:
    """What only this person was shown since then."""
    return [
        call
        for call in place.calls[since:]
        if (call.method == "chat.postEphemeral" and call.args.get("user") == user)
        or call.method in ("views.open", "views.update")
    ]


def _words(place: Town, since: int, answer: Any) -> str:
    told = [str(call.args.get("text") or call.args.get("view"))[:200] for call in place.calls[since:]]
    return json.dumps([answer, told], default=str)[:600]


def pairs(doors: Sequence[Door], state: str, *, all_of_them: bool = PROVE) -> list[tuple[Door, str]]:
    """Who comes to which door: the cells of one state. `make test` takes each seventh of them."""
    found = [(door, name) for door in doors if state != "nonce" or has_nonce(door) for name in comes(door)]
    return found if all_of_them else found[::7]


async def rows(
    place: Town, scenario: str, doors: Sequence[Door], state: str, tally: Tally, *, flow: str | None = None
) -> None:
    """All cells of one scenario in one state. A run of which nothing was taken serves the next person too."""
    stage: Stage | None = None
    for door, name in pairs(doors, state):
        if stage is None:
            stage = await set_up(place, flow or scenario, state)
        expected = gets_in(scenario, door, state, name)
        got_in, problems = await cell(stage, door, state, name, expected)
        tally.cells += 1
        tally.accepted += got_in
        tally.wrong += [f"{scenario}, {state}, {door.name}: {name} {problem}" for problem in problems]
        if (got_in or problems) and stage.root:
            stage = None


def found(folder: Path, scenarios: Sequence[str]) -> Tally:
    """The matrix over these scenarios."""
    tally = Tally()

    async def story() -> None:
        async with town(folder, FLOWS, runners=RUNNERS, admins=frozenset({id_of("adam")})) as place:
            settle_in(place)
            for scenario in scenarios:
                if scenario in STARTS:
                    await rows(place, scenario, STARTS[scenario], "open", tally)
                    continue
                if scenario in CONTROLS:
                    state, flow = ("held", "mine") if scenario == "held" else ("open", scenario)
                    await rows(place, scenario, CONTROLS[scenario], state, tally, flow=flow)
                for state in STATES.get(scenario, ()):
                    await rows(place, scenario, DOORS[scenario], state, tally)

    play(story)
    return tally


SCENARIOS = (*STATES, "held", "two", *STARTS)


def cells(scenario: str, *, all_of_them: bool = PROVE) -> int:
    """How many cells a scenario has, all states together."""
    found = [(STARTS.get(scenario) or CONTROLS.get(scenario, ()), "open")]
    if scenario not in STARTS:
        found += [(DOORS[scenario], state) for state in STATES.get(scenario, ())]
    return sum(len(pairs(doors, state, all_of_them=all_of_them)) for doors, state in found)


@pytest.mark.timeout(600 if PROVE else 120)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_only_whom_the_table_names_gets_in(
    tmp_path: Path, scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At every entry point, exactly the people in the table get in, and others change nothing."""
    tally = found(tmp_path, [scenario])
    with capsys.disabled():
        print(
            f"\nmatrix of {scenario}: {tally.cells} cells, {tally.accepted} accepted, {len(tally.wrong)} wrong"
        )
    assert tally.wrong == []
    assert tally.cells == cells(scenario)
    assert tally.accepted > 0


def test_the_matrix_is_large() -> None:
    """All scenarios together have at least five hundred cells, and every action has one in which somebody gets in."""
    assert sum(cells(scenario, all_of_them=True) for scenario in SCENARIOS) >= 500
    assert {action for (_, action), names in GETS_IN.items() if names} >= {
        "start", "answer", "vote", "edit", "hand", "control", "resolve"
    }  # fmt: skip
