"""A paused session keeps its own text of the flow, until a person lets it continue with another one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.decide.commands import NodeDone
from engine.decide.past import MigrationRefused, fork, plan
from engine.flow import Flow
from engine.flow.load import load_flow
from engine.language.errors import NotAllowed, SessionEnded, SessionRunning, StorageFull, UnknownSession
from engine.run.verify import verify
from tests.support.engine import (
    ANA,
    BEN,
    Backing,
    EngineRig,
    FaultyStore,
    Scenario,
    flow_of,
    nobody_but,
    running,
)

OLD = """
inputs: {who: {type: string, default: bob}}
nodes:
  - {id: first, type: shell, with: {run: [now, first]}}
  - id: each
    type: foreach
    with: {items: [x, y], as: it}
    body:
      - {id: work, type: shell, with: {run: [now, "{{ it }}"]}}
      - {id: sure, type: ask, with: {message: "{{ it }}?"}}
  - {id: end, type: set, with: {said: old}}
"""

NEW = """
inputs: {who: {type: string, default: bob}, more: {type: string, default: new}}
nodes:
  - {id: early, type: shell, with: {run: [now, early]}}
  - id: each
    type: foreach
    with: {items: [x, y], as: it}
    body:
      - {id: work, type: shell, with: {run: [now, "{{ it }}"]}}
      - {id: added, type: shell, with: {run: [now, "added {{ it }}"]}}
      - {id: sure, type: ask, with: {message: "{{ it }}?"}}
      - {id: after, type: shell, with: {run: [now, "after {{ it }}"]}}
  - {id: end, type: set, with: {said: "{{ inputs.more }}"}}
"""


async def waiting(rig: EngineRig, text: str = OLD) -> str:
    """A session of the old text that waits in the first pass."""
    session_id = await rig.start(text)
    assert (await rig.engine.parked(session_id)).phase == "waiting"
    return session_id


async def test_a_session_goes_on_with_the_new_text_and_keeps_what_is_done(rig: EngineRig) -> None:
    """The answered question completes in the new list, its new successor runs, and nothing that ran runs again; a new
    node before the place where the session stood is passed over."""
    session_id = await waiting(rig)
    made = await rig.engine.migrate(session_id, flow_of(NEW), actor=ANA)
    assert (made.problems, made.gone) == ([], ["first"])
    assert made.waits == {"each[0]/sure": "ask"}
    assert made.passed_over == ["early", "each[0]/added"]
    await rig.reply(session_id, "yes")
    state = await rig.reply(session_id, "yes")
    assert state.status == "complete"
    assert rig.shop.ran == [
        "first",
        "each[0]/work",
        "each[0]/after",
        "each[1]/work",
        "each[1]/added",
        "each[1]/after",
    ]
    assert state.nodes["end"].output == {"said": "new"}
    assert state.nodes["first"].output["stdout"] == "first"


async def test_the_switch_is_journaled_and_found_again_by_another_process(
    backing: Backing, tmp_path: Path
) -> None:
    """The head has the new digest; a fresh engine reads the new text and an equal state."""
    async with running(backing.open(), tmp_path) as rig:
        session_id = await waiting(rig)
        await rig.engine.migrate(session_id, flow_of(NEW), actor=BEN)
        before = await rig.engine.state(session_id)
    async with running(backing.open(), tmp_path) as rig:
        assert (await rig.engine.head(session_id)).flow_digest == flow_of(NEW).digest
        assert await rig.engine.flow_of(session_id) == flow_of(NEW)
        event = (await rig.engine.journal(session_id))[-1]
        assert (event.type, event.to_wire()["actor"]["id"]) == ("flow:migrated", BEN.id)
        assert await rig.engine.state(session_id) == before
        assert (await rig.reply(session_id, "yes")).phase == "waiting"
        assert rig.shop.ran == ["each[0]/after", "each[1]/work", "each[1]/added"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{id: sure, type: ask", "{id: sure2, type: ask", "each[0]/sure: is running"),
        (
            '{id: sure, type: ask, with: {message: "{{ it }}?"}}',
            "{id: sure, type: noop}",
            "each[0]/sure: is running as ask",
        ),
        ("id: each", "id: every", "each[0]: the new version has no such list"),
        ("inputs: {who", "inputs: {must: {type: string}, who", "needs `must`"),
        ("default: bob", "default: eve, choices: [eve]", "inputs:"),
    ],
)
async def test_a_text_without_what_is_under_way_is_refused(
    rig: EngineRig, old: str, new: str, said: str
) -> None:
    """Each reason is reported, of a fork too; nothing is written, and the session continues with its own text."""
    session_id = await waiting(rig)
    head = await rig.engine.head(session_id)
    changed = flow_of(OLD.replace(old, new))
    with pytest.raises(MigrationRefused, match=re.escape(said)):
        await rig.engine.migrate(session_id, changed, actor=ANA)
    with pytest.raises(MigrationRefused, match=re.escape(said)):
        await rig.engine.fork(session_id, head.seq, actor=ANA, text=changed, fork_id="session-0f")
    with pytest.raises(UnknownSession):
        await rig.engine.head("session-0f")
    after = await rig.engine.head(session_id)
    assert (after.seq, after.flow_digest, after.owner) == (head.seq, head.flow_digest, None)
    await rig.reply(session_id, "yes")
    assert (await rig.reply(session_id, "yes")).nodes["end"].output == {"said": "old"}


async def test_what_is_done_cannot_come_again(rig: EngineRig) -> None:
    """A text that puts a completed node behind the one that waits is refused."""
    session_id = await waiting(rig, "nodes: [{id: a, type: noop}, {id: b, type: ask, with: {message: m}}]")
    turned = flow_of("nodes: [{id: b, type: ask, with: {message: m}}, {id: a, type: noop}]")
    with pytest.raises(MigrationRefused, match="a is done and would run again"):
        await rig.engine.migrate(session_id, turned, actor=ANA)


async def test_only_a_paused_session_can_be_migrated(rig: EngineRig) -> None:
    """A running one is asked to be paused first; an ended one has nothing left; a held one stays held."""
    text = "nodes: [{id: a, type: shell, with: {run: [wait]}, on_crash: again}, {id: b, type: noop}]"
    session_id = await rig.start(text)
    await rig.shop.running("a")
    with pytest.raises(SessionRunning):
        await rig.engine.migrate(session_id, flow_of(text + "\n"), actor=ANA)
    await rig.engine.pause(session_id, actor=ANA)
    await rig.engine.migrate(session_id, flow_of(text.replace("b, type: noop", "c, type: noop")), actor=ANA)
    assert (await rig.engine.head(session_id)).phase == "held"
    await rig.engine.resume(session_id, "go", actor=ANA)
    await rig.shop.finish("a")
    state = await rig.engine.parked(session_id)
    assert (state.status, sorted(state.nodes)) == ("complete", ["a", "c"])
    with pytest.raises(SessionEnded):
        await rig.engine.migrate(session_id, flow_of(text), actor=ANA)


async def test_whoever_may_not_resume_may_not_migrate(backing: Backing, tmp_path: Path) -> None:
    """The policy is asked, and nothing changes."""
    async with running(backing.open(), tmp_path, policy=nobody_but(ANA)) as rig:
        session_id = await waiting(rig)
        with pytest.raises(NotAllowed):
            await rig.engine.migrate(session_id, flow_of(NEW), actor=BEN)
        assert (await rig.engine.head(session_id)).flow_digest == flow_of(OLD).digest


async def test_a_switch_that_could_not_be_stored_did_not_happen(backing: Backing, tmp_path: Path) -> None:
    """When the commit fails the session continues with its own text."""
    store = FaultyStore(backing.open())
    async with running(store, tmp_path) as rig:
        session_id = await waiting(rig)
        store.failures.append(StorageFull("no space"))
        with pytest.raises(StorageFull):
            await rig.engine.migrate(session_id, flow_of(NEW), actor=ANA)
        await rig.reply(session_id, "yes")
        state = await rig.reply(session_id, "yes")
        assert state.nodes["end"].output == {"said": "old"}


async def test_the_same_text_changes_nothing(rig: EngineRig) -> None:
    """Nothing is journaled where there is nothing to change."""
    session_id = await waiting(rig)
    seq = (await rig.engine.head(session_id)).seq
    assert (await rig.engine.migrate(session_id, flow_of(OLD), actor=ANA)).problems == []
    assert (await rig.engine.head(session_id)).seq == seq


async def test_a_question_for_an_input_needs_that_input_in_the_new_text(rig: EngineRig) -> None:
    """Before the flow has begun the session waits for an input: the new text must have it, with its type."""
    asks = "inputs: {who: {type: string}}\nnodes: [{id: a, type: noop}]"
    session_id = await waiting(rig, asks)
    state = await rig.engine.state(session_id)
    other = flow_of(asks.replace("string", "integer"))
    assert plan(flow_of(asks), other, state).problems
    await rig.engine.migrate(session_id, flow_of(asks.replace("a, type", "b, type")), actor=ANA)
    assert sorted((await rig.reply(session_id, "bob")).nodes) == ["b"]


async def test_an_input_that_was_left_empty_stays_empty(rig: EngineRig) -> None:
    """It is not a wrong value, and the new text's default does not come in its place."""
    old = 'inputs: {note: {type: string, required: false}}\nnodes: [{id: a, type: ask, with: {message: "Go?"}}, {id: b, type: set, with: {said: old}}]'
    new = old.replace("required: false", "default: late").replace("said: old", 'said: "{{ inputs.note }}"')
    session_id = await waiting(rig, old)
    await rig.engine.migrate(session_id, flow_of(new), actor=ANA)
    assert (await rig.reply(session_id, "go")).nodes["b"].output == {"said": None}


async def test_a_fork_from_before_the_switch_has_the_text_of_that_time(rig: EngineRig) -> None:
    """Forked from the event before the migration the session runs the old text, from after it the new one."""
    session_id = await waiting(rig)
    await rig.engine.migrate(session_id, flow_of(NEW), actor=ANA)
    seq = (await rig.engine.head(session_id)).seq
    ends = []
    for at in (seq - 1, seq):
        fork = await rig.engine.fork(session_id, at, actor=ANA, answers={"sure": "yes"})
        await rig.engine.parked(fork)
        ends.append((await rig.reply(fork, "yes")).nodes["end"].output["said"])
    assert ends == ["old", "new"]


async def test_a_migrated_session_travels_with_its_new_text(tmp_path: Path) -> None:
    """Exported and brought into another store with the same key, it continues with the new version."""
    backing = Backing("memory", tmp_path)
    key = b"k" * 32
    async with running(backing.open(key), tmp_path) as rig:
        session_id = await waiting(rig)
        await rig.engine.migrate(session_id, flow_of(NEW), actor=ANA)
        file = await rig.engine.export(session_id)
    async with running(Backing("memory", tmp_path / "there").open(key), tmp_path) as rig:
        await rig.engine.resume_from_snapshot(file)
        await rig.reply(session_id, "yes")
        assert (await rig.reply(session_id, "yes")).nodes["end"].output == {"said": "new"}


GRAPH = """
nodes:
  - {id: a, type: ask, with: {message: A?}}
  - {id: b, type: noop}
  - {id: c, type: noop}
edges:
  - {from: a, to: b}
  - {from: b, to: c}
"""


async def test_other_edges_between_nodes_under_way_are_refused(rig: EngineRig) -> None:
    """A graph that is in progress keeps its edges; a condition on one may be another, and counts from then on."""
    session_id = (await rig.settled(GRAPH)).session_id
    turned = flow_of(GRAPH.replace("{from: b, to: c}", "{from: a, to: c}"))
    with pytest.raises(MigrationRefused, match="has other edges between them"):
        await rig.engine.migrate(session_id, turned, actor=ANA)
    asked = flow_of(GRAPH.replace("{from: b, to: c}", "{from: b, to: c, when: '{{ false }}'}"))
    await rig.engine.migrate(session_id, asked, actor=ANA)
    state = await rig.reply(session_id, "yes")
    assert (state.nodes["b"].status, state.nodes["c"].status) == ("completed", "skipped")
    assert (state.status, (state.error or {})["type"]) == ("failed", "unreached")


CALLER = "flow: caller\nnodes: [{id: call, type: flow, with: {flow: called}}]"
CALLED = (
    "flow: called\ninputs: {a: {type: string, default: x}}\nnodes: [{id: q, type: ask, with: {message: Q?}}]"
)


async def test_a_called_flow_under_way_gets_no_new_inputs(rig: EngineRig) -> None:
    """Its inputs were given when it was called, so a text with further ones is refused; before the call it is not."""

    def linked(called: str) -> Flow:
        return load_flow(
            CALLER, "caller.yml", flows=lambda name: load_flow(called, "called.yml"), known=["called"]
        )

    more = CALLED.replace("inputs: {", "inputs: {b: {type: string, default: y}, ")
    session_id = await rig.engine.start(linked(CALLED), {}, actor=ANA)
    await rig.engine.parked(session_id)
    with pytest.raises(MigrationRefused, match="new inputs: `b`"):
        await rig.engine.migrate(session_id, linked(more), actor=ANA)
    await rig.engine.migrate(session_id, linked(CALLED.replace("Q?", "Really?")), actor=ANA)
    assert (await rig.reply(session_id, "yes")).status == "complete"


async def test_a_fork_goes_on_under_another_text(rig: EngineRig) -> None:
    """A fork at an event of the past runs the new text from there, and its parent keeps its own."""
    session_id = await waiting(rig)
    at = (await rig.engine.head(session_id)).seq
    begun = await rig.engine.fork(session_id, at, actor=ANA, text=flow_of(NEW), answers={"sure": "yes"})
    assert (await rig.engine.parked(begun)).phase == "waiting"
    assert rig.shop.ran == ["first", "each[0]/work", "each[0]/after", "each[1]/work", "each[1]/added"]
    assert (await rig.reply(begun, "yes")).nodes["end"].output == {"said": "new"}
    journal = await rig.engine.journal(begun)
    assert verify(journal, flow_of(NEW)) == await rig.engine.state(begun)
    assert await rig.engine.flow_of(session_id) == flow_of(OLD)


def test_a_fork_under_another_text_cuts_what_ran() -> None:
    """A fork from the middle of a node runs that node again, and then what the new text has after it."""
    text = "nodes: [{id: a, type: shell, with: {run: [x]}, on_crash: again}, {id: b, type: noop}]"
    case = Scenario(flow_of(text)).started()
    new = flow_of(text.replace("b, type", "c, type"))
    past = fork(case.events, case.state.seq, "session-f0rk", BEN, case.now, "entropy")
    past.under(case.flow, new, BEN)
    copy = Scenario(new)
    copy.events, copy.state = list(past.events), past.state
    copy.claimed().when(NodeDone("a", 2, {"stdout": ""}))
    assert (copy.state.status, sorted(copy.state.nodes)) == ("complete", ["a", "c"])
    verify(copy.events, new)
