"""Pausing changes nothing: every flow of the proof, paused at every point, has the same history as without a pause."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, example, given, note, settings

from engine.flow import Flow
from engine.nodes.types.registry import node_types
from tests.proof import generated
from tests.proof.flows import FLOWS, flow, of_text, types_in
from tests.proof.lives import Life, Run, compare, drops, every, holds, pairs, run
from tests.support.proving import PROVE, part, sampled

MOST_NODES = 12
"""Flows with up to so many nodes (called ones included) are paused at every two points."""

MOST_PAIRS = 120
"""So many of the pairs of a flow are tried in the long version; the short one takes up to eight of some flows."""

WHOLE = (
    "foreach",
    "foreach_asks",
    "retry",
    "parallel",
    "sub_flow",
    "switch",
    "goto_back",
    "finally",
    "approval_covers",
)
"""The flows of which `make test` tries every point, and pairs of them; of each other one it takes every tenth."""


def test_the_flows_of_the_proof_cover_every_type() -> None:
    """At least thirty flows, and every node type in one of them, but agents, whose conversations are proved apart."""
    flows = [flow(name) for name in FLOWS]
    assert len(flows) >= 30
    assert types_in(flows) == set(node_types()) - {"agent"}


def few(lives: list[list[Life]], name: str) -> list[list[Life]]:
    """Those of `make test`; other ones for each flow."""
    return lives if PROVE or name in WHOLE else lives[list(FLOWS).index(name) % 10 :: 10]


async def plain(each: Flow, home: Path, *, twice: bool = True) -> Run:
    """The run that nobody pauses; done twice, it tells the same story."""
    first = await run(each, [], home)
    if twice:
        compare(first.story, (await run(each, [], home)).story)
    assert first.lives == 1
    return first


@pytest.mark.parametrize("name", FLOWS)
async def test_a_pause_at_every_point_changes_nothing(name: str, tmp_path: Path, hit: Counter[str]) -> None:
    """Memory lost after any commit, or a hold before anything that happens: outputs, effects, journal are the same."""
    each = flow(name)
    expected = await plain(each, tmp_path, twice=PROVE or name in WHOLE)
    for life in few(drops(expected.commits), name):
        compare(expected.story, (await run(each, life, tmp_path)).story)
        hit["memory lost between two commits"] += 1
    for life in few(holds(expected.acts), name):
        compare(expected.story, (await run(each, life, tmp_path)).story)
        hit["held by a person and resumed in a fresh engine"] += 1


@pytest.mark.parametrize("name", sampled(list(FLOWS), WHOLE))
async def test_two_pauses_at_every_pair_of_points_change_nothing(
    name: str, tmp_path: Path, hit: Counter[str]
) -> None:
    """The same for every two points of a flow of up to twelve nodes; a part of them where there are many."""
    each = flow(name)
    if sum(len(nodes.nodes) for nodes in each.lists.values()) > MOST_NODES:
        pytest.skip("more nodes than twelve")
    expected = await run(each, [], tmp_path)
    lives = pairs(expected.commits)
    if PROVE:
        lives += [
            [Life(hold_before=first), Life(hold_before=second)]
            for first, second in itertools.product(range(expected.acts), repeat=2)
        ]
        lives += [
            [Life(drop_after=first), Life(hold_before=second)]
            for first, second in itertools.product(range(1, expected.commits), range(expected.acts))
        ]
    hit["pairs of points that there are"] += len(lives)
    for life in part(lives, MOST_PAIRS, name) if PROVE else lives[:: 1 + len(lives) // 8]:
        compare(expected.story, (await run(each, life, tmp_path)).story)
        hit["pairs of points"] += 1


@pytest.mark.parametrize("name", FLOWS)
async def test_pausing_at_every_point_of_one_run_changes_nothing(
    name: str, tmp_path: Path, hit: Counter[str]
) -> None:
    """One run that loses its memory after each of its commits, one held before each act (in fresh engines, and in one), and one with both."""
    each = flow(name)
    expected = await run(each, [], tmp_path)
    ways = (
        lambda number: Life(drop_after=1),
        lambda number: Life(hold_before=min(number, 1)),
        lambda number: Life(drop_after=1) if number % 2 else Life(hold_before=1),
    )
    for way in ways if PROVE or name in WHOLE else ways[:1]:
        paused = await run(each, every(way), tmp_path)
        compare(expected.story, paused.story)
        hit["pauses in runs that are paused all the time"] += paused.lives - 1
    paused = await run(each, [Life(hold_always=True)], tmp_path)
    compare(expected.story, paused.story)
    hit["pauses in runs that are paused all the time"] += paused.acts


@pytest.mark.timeout(3600 if PROVE else 900)
@settings(
    max_examples=300 if PROVE else 4,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink] if PROVE else [Phase.explicit, Phase.generate],
)
@example(generated.PAUSED_WHILE_IT_FAILS)
@given(generated.texts())
async def test_a_pause_changes_nothing_in_a_flow_that_nobody_wrote(text: str) -> None:
    """Generated flows with containers in each other, retries and failures, paused at every point."""
    from tests.conftest import TRIED

    note(text)
    each = of_text(text)
    with TemporaryDirectory() as folder:
        expected = await plain(each, Path(folder))
        for life in drops(expected.commits) + holds(expected.acts):
            compare(expected.story, (await run(each, life, Path(folder))).story)
            TRIED["points of generated flows"] += 1
        paused = await run(each, every(lambda number: Life(drop_after=1)), Path(folder))
        compare(expected.story, paused.story)
    TRIED["generated flows"] += 1
