"""The shell around failures and endings: what is told to leave, and what is launched while a session ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.nodes.runtime.runner import Failed
from engine.storage.open import MemoryStore
from tests.support.engine import ANA, running

LAST = "\nfinally: [{id: tidy, type: shell, with: {run: [wait]}}]"
FLOW = "nodes: [{id: a, type: shell, with: {run: [wait]}}]" + LAST


async def test_an_abort_cuts_what_runs_and_then_runs_finally(tmp_path: Path) -> None:
    """The running node of the flow is stopped; the node of `finally` is launched and not stopped."""
    async with running(MemoryStore(), tmp_path) as rig:
        session = await rig.start(FLOW)
        await rig.shop.running("a")
        await rig.engine.abort(session, actor=ANA)
        work = await rig.shop.running("finally/tidy")
        assert not work.context.aborted.is_set()
        await rig.shop.finish("finally/tidy")
        assert (await rig.engine.parked(session)).status == "aborted"


async def test_a_second_abort_cuts_finally(tmp_path: Path) -> None:
    """What runs at the end leaves too, and the session ends."""
    async with running(MemoryStore(), tmp_path) as rig:
        session = await rig.start(FLOW)
        await rig.shop.running("a")
        await rig.engine.abort(session, actor=ANA)
        await rig.shop.running("finally/tidy")
        await rig.engine.abort(session, actor=ANA)
        assert (await rig.engine.parked(session)).status == "aborted"


async def test_a_failed_branch_cuts_the_others_of_its_graph(tmp_path: Path) -> None:
    """The flow has failed: the branch beside it is told to leave, and what runs at the end follows."""
    flow = (
        "nodes: [{id: a, type: shell, with: {run: [wait]}}, {id: b, type: shell, with: {run: [wait]}}, "
        "{id: c, type: noop}]\nedges: [{from: a, to: c}, {from: b, to: c}]" + LAST
    )
    async with running(MemoryStore(), tmp_path) as rig:
        session = await rig.start(flow)
        await rig.shop.running("b")
        await rig.shop.finish("a", Failed("exit_code", "no", {}))
        await rig.shop.finish("finally/tidy")
        assert (await rig.engine.parked(session)).status == "failed"


BAD = '{id: bad, type: set, with: {x: "{{ 1 / 0 }}"}}'
SLOW = "{id: slow, type: shell, with: {run: [wait]}}"
AT_ONCE = {
    "graph": f"nodes: [{{id: a, type: set, with: {{x: 1}}}}, {SLOW}, {BAD}]\n"
    "edges: [{from: a, to: slow}, {from: a, to: bad}]",
    "graph with finally": f"nodes: [{{id: a, type: set, with: {{x: 1}}}}, {SLOW}, {BAD}]\n"
    "edges: [{from: a, to: slow}, {from: a, to: bad}]\nfinally: [{id: tidy, type: set, with: {x: 1}}]",
    "parallel": f"nodes: [{{id: p, type: parallel, branches: {{l: [{SLOW}], r: [{BAD}]}}}}]",
    "finally": "nodes: [{id: a, type: set, with: {x: 1}}]\n"
    f"finally: [{{id: p, type: parallel, branches: {{l: [{SLOW}], r: [{BAD}]}}}}]",
    "loop": f"nodes: [{{id: a, type: set, with: {{x: 1}}}}, {SLOW}, {{id: b, type: set, with: {{x: 1}}}}]\n"
    "edges: [{from: a, to: slow}, {from: a, to: b}, {from: b, to: a, type: loop, max_iterations: 1, when: '{{ true }}'}]",
}


@pytest.mark.parametrize("name", AT_ONCE)
async def test_a_node_that_began_in_the_step_that_failed_the_flow_never_runs(
    name: str, tmp_path: Path
) -> None:
    """The run ends, and nobody waits for a node that was never launched."""
    async with running(MemoryStore(), tmp_path) as rig:
        session = await rig.start(AT_ONCE[name])
        async with asyncio.timeout(30):
            if name == "loop":
                await rig.shop.finish("slow")
            state = await rig.engine.parked(session)
        assert state.status == "failed"
        assert rig.shop.ran == (["slow"] if name == "loop" else [])
