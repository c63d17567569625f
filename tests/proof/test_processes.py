"""The same proof with real deaths: every life is a process, the store a SQLite file, effects are in a file outside."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.proof.flows import FLOWS
from tests.proof.lives import Life, compare, drops, every, holds, pairs
from tests.proof.process import Processes
from tests.support.proving import PROVE, part

SHORT = ("foreach_asks", "lock_behind_another")
FEW_COMMITS = 5
"""In the long version a flow that takes up to so many commits is killed at every two points."""
MOST_POINTS = 6
"""So many points (or pairs of them) of a flow are tried in the long version."""

pytestmark = pytest.mark.process


@pytest.mark.parametrize("name", FLOWS if PROVE else SHORT)
def test_a_kill_after_any_commit_changes_nothing(name: str, tmp_path: Path, hit: Counter[str]) -> None:
    """After SIGKILL right after a commit, or a pause before an action, a new process brings the session to the same end."""
    processes = Processes(name, tmp_path)
    expected = processes.run([])
    lives = drops(expected.commits) + holds(expected.acts)[:: 2 if PROVE else 4]
    if PROVE and expected.commits <= FEW_COMMITS:
        lives += pairs(expected.commits)
    for life in part(lives, MOST_POINTS, name) if PROVE else lives[::2]:
        compare(expected.story, processes.run(life).story)
        hit["points at which a process was killed or held, and another one went on"] += len(life)


@pytest.mark.parametrize("name", part(sorted(FLOWS), 30, "all") if PROVE else ("sub_flow_in_parallel",))
def test_a_process_for_each_commit_changes_nothing(name: str, tmp_path: Path, hit: Counter[str]) -> None:
    """One run in which every process is killed after the first commit that says something new."""
    processes = Processes(name, tmp_path)
    expected = processes.run([])
    killed = processes.run(every(lambda number: Life(drop_after=1)))
    compare(expected.story, killed.story)
    assert killed.lives >= expected.commits
    hit["processes of runs that are killed all the time"] += killed.lives
