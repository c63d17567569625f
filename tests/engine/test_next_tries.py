"""The next try of a session that failed: it continues at the node that failed, and nothing that had completed runs again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.decide.past import TriedAgain
from engine.journal.queries import is_rejection, next_try
from engine.language.errors import NotAllowed, SessionError
from engine.nodes.runtime.runner import Failed
from tests.support.engine import ANA, BEN, Backing, EngineRig, nobody_but, running

NO = Failed("exit_code", "no")
THREAD = {"team": "T1", "channel": "C1", "threadTs": "1.2", "key": "T1:C1:1.2"}
PLAIN = """
nodes:
  - {id: a, type: shell, with: {run: [now, a]}}
  - {id: b, type: shell, with: {run: [wait]}}
  - {id: c, type: shell, with: {run: [now, c]}}
"""
EACH = """
nodes:
  - id: each
    type: foreach
    with: {items: [x, y, z], as: it}
    body:
      - {id: work, type: shell, with: {run: [wait]}}
  - {id: c, type: shell, with: {run: [now, c]}}
"""
SIDE_BY_SIDE = """
nodes:
  - id: both
    type: parallel
    branches:
      one: [{id: left, type: shell, with: {run: [stubborn]}}]
      two: [{id: right, type: shell, with: {run: [stubborn]}}]
  - {id: c, type: shell, with: {run: [now, c]}}
"""


async def failed(rig: EngineRig, session_id: str) -> None:
    """The session ends, badly."""
    assert (await rig.engine.parked(session_id)).status == "failed"


async def again(rig: EngineRig, session_id: str) -> str:
    """The next try; what ran before it is forgotten here."""
    rig.shop.ran.clear()
    return await rig.engine.retry(session_id, actor=BEN)


async def test_it_goes_on_at_the_node_that_failed_in_the_same_thread(rig: EngineRig) -> None:
    """What was done is not done again, the node begins once more without a question, and whoever tries again is the requester."""
    parent = await rig.start(PLAIN, thread=THREAD)
    await rig.shop.finish("b", NO)
    await failed(rig, parent)
    child = await again(rig, parent)
    await rig.shop.finish("b")
    state = await rig.engine.parked(child)
    assert (state.status, state.thread, state.actor["id"]) == ("complete", THREAD, BEN.id)
    assert rig.shop.ran == ["b", "c"]
    head = await rig.engine.head(child)
    assert (head.thread_key, head.parent_session_id) == (THREAD["key"], parent)
    assert (await rig.engine.state(parent)).status == "failed"


async def test_it_is_tried_again_once_and_its_next_try_again_once(rig: EngineRig) -> None:
    """Two presses, or one that is carried out a second time after a crash, begin one session; that one has its own next."""
    parent = await rig.start(PLAIN)
    await rig.shop.finish("b", NO)
    await failed(rig, parent)
    child = await again(rig, parent)
    with pytest.raises(TriedAgain, match=child):
        await again(rig, parent)
    await rig.shop.finish("b", NO)
    await failed(rig, child)
    grandchild = await again(rig, child)
    assert [child, grandchild] == [next_try(parent), next_try(child)]
    await rig.shop.finish("b")
    assert (await rig.engine.parked(grandchild)).status == "complete"


async def test_two_who_try_again_in_the_same_moment_begin_one_session_with_its_files(rig: EngineRig) -> None:
    """One of them is told so, and takes nothing away from the session that the other one began."""
    parent = await rig.start(PLAIN)
    await rig.shop.finish("b", NO)
    await failed(rig, parent)
    folder = rig.engine.executor.jobs.folder(parent)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kept.txt").write_text("of the past")
    tries = [rig.engine.retry(parent, actor=person) for person in (ANA, BEN)]
    done = await asyncio.gather(*tries, return_exceptions=True)
    assert sorted(type(one).__name__ for one in done) == ["TriedAgain", "str"], done
    await rig.shop.finish("b")
    assert (await rig.engine.parked(next_try(parent))).status == "complete"
    assert (rig.engine.executor.jobs.folder(next_try(parent)) / "kept.txt").read_text() == "of the past"


async def test_the_item_that_failed_is_tried_again_and_those_that_were_done_stay_done(rig: EngineRig) -> None:
    """In the second of three passes: the first does not run again, the third runs."""
    parent = await rig.start(EACH)
    await rig.shop.finish("each[0]/work")
    await rig.shop.finish("each[1]/work", NO)
    await failed(rig, parent)
    child = await again(rig, parent)
    await rig.shop.finish("each[1]/work")
    await rig.shop.finish("each[2]/work")
    assert (await rig.engine.parked(child)).status == "complete"
    assert rig.shop.ran == ["each[1]/work", "each[2]/work", "c"]


async def test_what_ran_beside_it_and_was_cut_is_asked_about(rig: EngineRig) -> None:
    """The branch that failed begins again; the other was running, and `on_crash` decides about it."""
    parent = await rig.start(SIDE_BY_SIDE.replace("[stubborn]", "[wait]"))
    await rig.shop.running("both[two]/right")
    await rig.shop.finish("both[one]/left", NO)
    await failed(rig, parent)
    child = await again(rig, parent)
    await rig.shop.finish("both[one]/left")
    prompt = await rig.open_prompt(child)
    assert (prompt.kind, prompt.path) == ("interrupted", "both[two]/right")
    assert (await rig.answer(child, "done")).status == "complete"
    assert rig.shop.ran == ["both[one]/left", "c"]


async def test_it_is_refused_where_something_was_done_after_the_failure(rig: EngineRig) -> None:
    """A branch that ended well after the other had failed would run again: that is said, and nothing begins."""
    parent = await rig.start(SIDE_BY_SIDE)
    await rig.shop.running("both[two]/right")
    await rig.shop.finish("both[one]/left", NO)
    await rig.shop.finish("both[two]/right")
    await failed(rig, parent)
    with pytest.raises(SessionError, match="Start a new run"):
        await again(rig, parent)
    assert rig.shop.ran == []


async def test_an_on_failure_that_ran_does_not_matter(rig: EngineRig) -> None:
    """The node begins once more, although its `on_failure` had completed something after the failure."""
    undo = "on_failure: [{id: undo, type: shell, with: {run: [now]}}]"
    parent = await rig.start(f"nodes:\n  - {{id: b, type: shell, with: {{run: [wait]}}, {undo}}}\n")
    await rig.shop.finish("b", NO)
    await failed(rig, parent)
    child = await again(rig, parent)
    await rig.shop.finish("b")
    assert (await rig.engine.parked(child)).status == "complete"


async def test_what_runs_at_the_end_is_no_part_of_what_was_done(rig: EngineRig) -> None:
    """`finally` ran after the failure, and runs at the end of the next try too."""
    parent = await rig.start(PLAIN + "finally: [{id: tidy, type: shell, with: {run: [now]}}]\n")
    await rig.shop.finish("b", NO)
    await failed(rig, parent)
    child = await again(rig, parent)
    await rig.shop.finish("b")
    assert (await rig.engine.parked(child)).status == "complete"
    assert rig.shop.ran == ["b", "c", "finally/tidy"]


async def test_a_node_that_fails_where_it_is_worked_out_is_worked_out_again(rig: EngineRig) -> None:
    """An expression that fails does so again, without anything before it being done twice."""
    flow = "nodes:\n  - {id: a, type: shell, with: {run: [now, a]}}\n  - {id: b, type: set, with: {x: '{{ 1 / 0 }}'}}\n"
    parent = await rig.start(flow)
    await failed(rig, parent)
    child = await again(rig, parent)
    await failed(rig, child)
    assert rig.shop.ran == []


async def test_a_decision_and_a_good_end_are_not_tried_again(rig: EngineRig) -> None:
    """People said no, or it is complete: there is nothing to try again."""
    gate = "nodes: [{id: gate, type: approval, with: {message: 'Go?', approvers: [channel]}}]"
    said = await rig.start(gate)
    await rig.engine.parked(said)
    assert is_rejection((await rig.answer(said, "reject")).error)
    good = await rig.start("nodes: [{id: a, type: shell, with: {run: [now]}}]")
    assert (await rig.engine.parked(good)).status == "complete"
    for session_id, words in ((said, "decision"), (good, "not failed")):
        with pytest.raises(SessionError, match=words):
            await again(rig, session_id)


async def test_whoever_may_not_start_may_not_try_again(backing: Backing, tmp_path: Path) -> None:
    """The policy is asked as for a start, with whom the flow lets start it."""
    async with running(backing.open(), tmp_path, policy=nobody_but(ANA)) as rig:
        parent = await rig.start(PLAIN)
        await rig.shop.finish("b", NO)
        await failed(rig, parent)
        with pytest.raises(NotAllowed):
            await rig.engine.retry(parent, actor=BEN)
