"""A kill changes nothing in a conversation with a model: two tools, a question, an approval, killed at every event."""

from __future__ import annotations

from collections import Counter
from itertools import repeat
from pathlib import Path

import pytest

from tests.proof import talk_process
from tests.proof.talks import RESUMED, Death, Run, compare, compare_effects, paid, run, same_length
from tests.support.proving import PROVE, part

MOST_PAIRS = 60


async def plain(folder: Path) -> Run:
    """The conversation that nobody disturbs."""
    found = await run(same_length(folder, 0), [])
    assert found.state.status == "complete"
    assert found.lives == 1
    assert len(found.marks) == 4
    paid(found)
    return found


def deaths(commits: int) -> list[Death]:
    """Every point at which a process can die: before and after each commit."""
    return [Death(commit, before) for commit in range(1, commits + 1) for before in (True, False)]


async def test_a_conversation_that_loses_its_memory_at_any_event_is_the_same(
    tmp_path: Path, hit: Counter[str]
) -> None:
    """Memory lost before or after any commit: same conversation byte for byte, each tool once, spent once."""
    expected = await plain(tmp_path)
    assert expected.commits >= 10
    for number, death in enumerate(deaths(expected.commits)[:: 1 if PROVE else 3], 1):
        compare(expected, await run(same_length(tmp_path, number), [death]))
        hit["points at which a conversation lost its memory"] += 1


async def test_a_conversation_that_loses_its_memory_all_the_time_is_the_same(
    tmp_path: Path, hit: Counter[str]
) -> None:
    """One run in which every life ends with its third commit, and one in which none hears of its fourth."""
    expected = await plain(tmp_path)
    for number, each in enumerate([Death(3), Death(4, before=True)], 1):
        found = await run(same_length(tmp_path, number), repeat(each))
        compare(expected, found)
        hit["lives of conversations that are killed all the time"] += found.lives


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_a_conversation_that_loses_its_memory_twice_is_the_same(
    tmp_path: Path, hit: Counter[str]
) -> None:
    """The same at pairs of points."""
    expected = await plain(tmp_path)
    pairs = [(first, second) for first in deaths(expected.commits) for second in deaths(expected.commits)]
    for number, pair in enumerate(part(pairs, MOST_PAIRS, "talk"), 1):
        compare(expected, await run(same_length(tmp_path, number), pair))
        hit["pairs of points at which a conversation lost its memory"] += 1


async def test_a_pause_at_any_event_loses_and_repeats_nothing(tmp_path: Path, hit: Counter[str]) -> None:
    """Held after any commit and resumed with a message: the model hears it, each tool ran once, and it ends as it did."""
    expected = await plain(tmp_path)
    for commit in range(1, expected.commits, 1 if PROVE else 2):
        found = await run(same_length(tmp_path, commit), [], hold_after=[commit])
        assert found.mind.refused == []
        assert found.output["text"] == expected.output["text"]
        compare_effects(expected, found)
        paid(found)
        assert RESUMED.encode() in found.last
        hit["points at which a conversation was held"] += 1


@pytest.mark.process
@pytest.mark.timeout(600)
async def test_a_process_that_is_killed_in_a_conversation_changes_nothing(
    tmp_path: Path, hit: Counter[str]
) -> None:
    """SIGKILL at a commit, with Anthropic's SDK and a server: the next process continues with the same conversation."""
    expected = await talk_process.run(same_length(tmp_path, 0), [])
    assert expected.mind.refused == []
    points = deaths((await plain(tmp_path / "direct")).commits)
    chosen = points if PROVE else [Death(8, before=True)]
    for number, death in enumerate(chosen, 1):
        compare(expected, await talk_process.run(same_length(tmp_path, number), [death]))
        hit["points at which the process of a conversation was killed"] += 1
    found = await talk_process.run(same_length(tmp_path, 999), repeat(Death(3 if PROVE else 5)))
    compare(expected, found)
    hit["processes of a conversation that is killed all the time"] += found.lives
