"""What is proved on SQLite holds on Postgres: the same flows tell the same story there, also where memory is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.flows import FLOWS, flow
from tests.proof.lives import compare, drops, run
from tests.support.proving import PROVE, sampled

KEPT = ("foreach_asks", "approval_covers", "parallel")


@pytest.mark.parametrize("name", sampled(list(FLOWS), KEPT))
async def test_a_pause_at_every_point_changes_nothing_on_postgres(name: str, tmp_path: Path) -> None:
    """Outputs, effects and journal are those of a run in memory that nobody paused."""
    expected = await run(flow(name), [], tmp_path)
    lives = drops(expected.commits)
    for life in lives if PROVE else lives[::4]:
        compare(expected.story, (await run(flow(name), life, tmp_path, "postgres")).story)
