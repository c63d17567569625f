"""Thousands of runs of the whole bot in which everything goes wrong that can, and nothing is lost, doubled or wrong."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.simulation import form_flows
from tests.simulation.file_flows import ALL, FILE_SAMPLES
from tests.simulation.further_flows import FURTHER_SAMPLES
from tests.simulation.run import AT_ONCE, Block, crowd, ground, run, run_block, trace_of
from tests.simulation.seeds import HUNTS, problems, shown
from tests.simulation.timeline import SimLoop, Stuck, Timeline
from tests.simulation.way_flows import WAY_SAMPLES
from tests.simulation.weather import Weather
from tests.simulation.world import FILES, FORMS, FURTHER, WAYS, Ground
from tests.support.proving import FIRST, PROVE, PROVE_ALL, sampled

SEEDS = 2_000 if PROVE else 20
FORM_SEEDS = 200 if PROVE else 10
"""How many runs with forms, changes and hand-overs."""
LATER = {FURTHER: FURTHER_SAMPLES, WAYS: WAY_SAMPLES, FILES: FILE_SAMPLES}
"""By the first of their seeds: the flows of what came after those."""
LATER_SEEDS = 30 if PROVE else 3
"""How many of each of them."""
BLOCK = AT_ONCE if PROVE else 10
"""Seeds in one test."""
FIRSTS = (*range(0, SEEDS, BLOCK), *range(FORMS, FORMS + FORM_SEEDS, BLOCK), *LATER)
MOST_SEEDS = 300
"""Within so many runs a seeded fault must be found."""
DELIVERIES = 100_000 if PROVE_ALL else 30_000
"""How many deliveries `make prove` makes at least."""
_TRACE = "from tests.simulation.run import trace_of; print(trace_of(int(__import__('sys').argv[1])))"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def land() -> Iterator[Ground]:
    """What the runs in this process share."""
    with ground() as made:
        yield made


def _counted(block: Block, hit: Counter[str]) -> None:
    """Fail with the seeds and what was wrong; `python -m tests.simulation.run SEED 1` shows one whole run."""
    hit.update({f"simulation: {name}": count for name, count in block.tried.items()})
    if block.problems:
        lines = [f"seed {seed}: {line}" for seed, problems in block.problems.items() for line in problems]
        replay = f"replay: python -m tests.simulation.run {next(iter(block.problems))} 1"
        pytest.fail("\n".join([*lines, replay]))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", FIRSTS)
def test_whatever_goes_wrong_nothing_is_lost_or_doubled(hit: Counter[str], first: int) -> None:
    """Every reply and press counts once or is refused with a word, and every session ends as its flow says."""
    _counted(run_block(first, LATER_SEEDS if first in LATER else BLOCK), hit)


@pytest.mark.timeout(7200)
@pytest.mark.long
def test_many_more_deliveries(hit: Counter[str]) -> None:
    """The same for so many more seeds, others each day, that the bot was sent tens of thousands of deliveries."""
    done, tried = FIRST, 0
    with crowd() as workers:
        while tried < DELIVERIES:
            # Of six blocks one with forms, and one each with what came after them.
            rows = [
                SEEDS + done,
                SEEDS + done + AT_ONCE,
                FORMS + FORM_SEEDS + done // 2,
                *(first + LATER_SEEDS + done // 2 for first in LATER),
            ]
            for block in workers.map(run_block, rows, [AT_ONCE] * len(rows)):
                _counted(block, hit)
                tried += block.tried["deliveries"]
            done += 2 * AT_ONCE


@pytest.mark.parametrize("flow", sampled(list(ALL), 8))
def test_a_day_without_faults_is_uneventful(land: Ground, flow: str) -> None:
    """Where nothing goes wrong each flow ends as the model says, in one life of the bot."""
    outcome = run(land, 1, weather=Weather(), wants=flow)
    assert (outcome.problems, outcome.lives) == ([], 1)


@pytest.mark.parametrize("seed", sampled([3, FORMS + 8, FILES + 14], [FILES + 14]))
def test_a_seed_replays_exactly(seed: int) -> None:
    """Another process with another hash seed gives the same run of one seed, byte for byte."""
    other = subprocess.run(
        [sys.executable, "-c", _TRACE, str(seed)],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
    )
    trace = trace_of(seed)
    assert other.stdout.decode() == trace + "\n"
    assert trace.count("\n") > 20


def test_a_card_whose_pause_is_almost_over_does_not_stop_the_clock(land: Ground) -> None:
    """In the run of seed 4837 a card waited for less than the clock can tell, was given out at once, and so on forever."""
    assert run(land, 4837).problems == []


def test_a_turn_does_not_wait_for_a_thread_whose_reader_waits_for_the_turn(land: Ground) -> None:
    """In the run of seed 3598 Slack refused a read and took one probe: whoever had it waited for whoever read the thread."""
    assert run(land, 3598).problems == []


def test_a_loop_that_never_waits_is_found() -> None:
    """What happens again and again without time passing ends the run with words, not with a test that hangs."""
    loop = SimLoop(Timeline())

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(Stuck, match="wait for nothing"):
        loop.run_forever()
    loop.close()


class Shapes:
    """Takes what a fault puts in, beside what it replaces; nothing is changed."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []

    def setattr(self, place: Any, name: str, value: Any) -> None:
        """As pytest's."""
        self.pairs.append((getattr(place, name), value))

    def setitem(self, place: Any, name: Any, value: Any) -> None:
        """As pytest's."""
        self.pairs.append((place[name], value))


@pytest.mark.parametrize("name", HUNTS)
def test_a_seeded_fault_takes_what_it_is_called_with(name: str) -> None:
    """One that cannot be called breaks everything, which proves nothing."""
    shapes = Shapes()
    HUNTS[name].fault(cast(pytest.MonkeyPatch, shapes))
    assert shapes.pairs
    for before, fault in shapes.pairs:
        asked = inspect.signature(before).parameters.values()
        plain = [each.name for each in asked if each.kind is not each.KEYWORD_ONLY]
        named = {each.name: None for each in asked if each.kind is each.KEYWORD_ONLY}
        inspect.signature(fault).bind(*plain, **named)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", HUNTS)
def test_a_seeded_fault_is_found_and_a_plain_day_does_not_show_it(
    name: str, land: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulation turns red with the fault and is green without it in the same run; a day without any weather ends well (in
    `make prove`)."""
    with monkeypatch.context() as patch:
        HUNTS[name].fault(patch)
        for flow in sampled_flows(name) if PROVE else ():
            days = (run(land, day, weather=Weather(), wants=flow).problems for day in (1, 2, 3))
            assert any(found == [] for found in days), flow
        seed, problem = next(shown(name, land, MOST_SEEDS), (-1, f"none of {MOST_SEEDS} runs shows it"))
        assert seed >= 0, problem
        print(f"{name}: seed {seed}: {problem[:150]}")
    assert problems(name, land, seed) == []


def sampled_flows(name: str) -> list[str]:
    """The flows among which the one is in which a fault matters."""
    kinds = (form_flows.ALL, FURTHER_SAMPLES, WAY_SAMPLES, FILE_SAMPLES)
    return list(next(flows for flows in kinds if HUNTS[name].flow in flows))
