"""What `make bench` measures is really there: commits are counted, and a commit's bytes are those of its rows."""

from __future__ import annotations

from pathlib import Path

import apsw

from bench import nodes
from bench.floor import Floor
from bench.rig import ANA, NOTHING, engine_in
from engine.language.codec import Json
from engine.nodes.runtime.runner import NodeContext, Outcome


async def at_once(config: dict[str, Json], ctx: NodeContext) -> Outcome:
    """A node that does nothing."""
    return NOTHING


async def test_a_linear_flow_costs_a_commit_a_node(tmp_path: Path) -> None:
    """The promise of at most one commit per node holds: ten nodes are the start's commit and one after each."""
    async with engine_in(tmp_path, at_once) as rig:
        session_id = await rig.engine.start(nodes.linear(nodes.SHELL, 10, "again"), {}, actor=ANA)
        await rig.engine.parked(session_id)
        assert rig.commits() == 11


async def test_a_node_that_is_asked_about_costs_two_commits_at_most(tmp_path: Path) -> None:
    """With `on_crash: ask` the start of each node is durable before it runs, in no more than two commits a node."""
    async with engine_in(tmp_path, at_once) as rig:
        session_id = await rig.engine.start(nodes.linear(nodes.SHELL, 10, "ask"), {}, actor=ANA)
        await rig.engine.parked(session_id)
        assert 10 < rig.commits() <= 21


async def test_the_floor_writes_as_many_bytes_as_a_commit(tmp_path: Path) -> None:
    """The bytes of a commit are more than those of its packed events, and the floor commits exactly so many."""
    async with engine_in(tmp_path, at_once) as rig:
        session_id = await rig.engine.start(nodes.linear(nodes.SHELL, 10, "again"), {}, actor=ANA)
        await rig.engine.parked(session_id)
        size = await rig.bytes_per_commit()
        database = apsw.Connection(str(rig.file), flags=apsw.SQLITE_OPEN_READONLY)
        packed = [int(row[0]) for row in database.execute("SELECT length(body) FROM journal")]
        database.close()
    assert len(packed) == 11
    assert size > sum(packed) / 11
    floor = Floor(tmp_path, size)
    assert len(floor.sample(3)) == 3
    rows = floor.rows()
    floor.close()
    assert rows == [size] * 3
