"""The cases that the specifications plan: deriving state, checkpoints, pausing inside containers, and resuming there.

Each says what was done outside as well as how the session stands.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest
from msgspec.structs import replace

from engine.decide.commands import Message
from engine.journal.events import Event
from engine.journal.fold import derive_state
from engine.journal.snapshot import from_json, to_json
from engine.journal.state import State
from engine.language.errors import (
    EmptyMessage,
    MalformedJournal,
    SessionEnded,
    SessionRunning,
    SnapshotRefused,
    UnknownSession,
)
from tests.proof.desk import Desk, Office
from tests.support.engine import ANA, SESSION, given

SAFE = "type: shell, on_crash: again, with: {run: [do, x]}"
TWO = f"nodes: [{{id: a, {SAFE}}}, {{id: b, {SAFE}}}]"
FOUR = "nodes: [" + ", ".join(f"{{id: n{number}, {SAFE}}}" for number in range(4)) + "]"


def each(items: int, children: int, *, inner: str = "") -> str:
    """A `foreach` over so many items with so many children."""
    body = ", ".join(f"{{id: c{number}, {SAFE}}}" for number in range(children))
    items_ = list(range(items))
    return f"nodes: [{{id: each, type: foreach, with: {{items: {items_}}}, body: [{body}{inner}]}}, {{id: z, {SAFE}}}]"


def children(items: range | list[int], count: int) -> list[str]:
    """The paths of the children of these iterations."""
    return [f"each[{item}]/c{number}" for item in items for number in range(count)]


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """A store and a world that outlive engines."""
    return Office(tmp_path)


async def finish(desk: Desk, office: Office, paths: list[str]) -> None:
    """The rest of the work is done and the session is complete; everything was done exactly once."""
    await desk.work(*paths)
    state = await desk.engine.parked(SESSION)
    assert state.status == "complete", state.error
    assert sorted(office.done) == sorted(set(office.done)), "something was done twice"


# --- deriving state ------------------------------------------------------------------------------------------


def test_the_state_of_an_empty_log_is_an_empty_state() -> None:
    """No events: idle, at nothing, with nothing."""
    document = to_json(derive_state([]))
    assert (document["status"], document["outputs"], document["containerStack"]) == ("idle", {}, [])
    assert document["currentNodeId"] is None


def test_the_state_after_one_node_has_its_output() -> None:
    """One completed node: its output is under its path, and the position is behind it."""
    case = given("nodes: [{id: a, type: set, with: {x: 1}}, {id: b, type: wait, with: {for: 1m}}]").started()
    document = to_json(derive_state(case.events))
    assert document["outputs"] == {"a": {"x": 1}}
    assert (document["currentNodeId"], document["currentNodeIndex"]) == ("b", 1)


NESTED = """
nodes:
  - id: outer
    type: foreach
    with: {items: [a, b]}
    body:
      - {id: first, type: set, with: {v: "{{ item }}"}}
      - id: inner
        type: foreach
        with: {items: [1, 2], as: n}
        body: [{id: done, type: set, with: {v: "{{ n }}"}}, {id: q, type: ask, with: {message: "{{ n }}?"}}]
"""


def test_the_state_of_nested_containers_is_a_stack_of_frames() -> None:
    """Outermost first, each with its iteration, its item, its child and what its children have given so far."""
    case = given(NESTED).started()
    case.when(case.answer(text="one"))
    outer, inner = to_json(derive_state(case.events))["containerStack"]
    assert (outer["nodeId"], outer["iterationIndex"], outer["currentItem"]) == ("outer", 0, "a")
    assert (outer["childIndex"], outer["partialChildOutputs"]) == (1, {"first": {"v": "a"}})
    assert (inner["nodeId"], inner["iterationIndex"], inner["totalIterations"]) == ("inner", 1, 2)
    assert (inner["childIndex"], inner["partialChildOutputs"]) == (1, {"done": {"v": 2}})


def test_completed_iterations_are_in_the_state_with_their_outputs() -> None:
    """Iterations that have ended stand with index and outputs; the children of the next begin with nothing."""
    case = given(NESTED).started()
    case.when(case.answer(text="one"))
    (finished,) = to_json(derive_state(case.events))["containerStack"][1]["completedIterations"]
    assert finished["index"] == 0
    assert finished["outputs"]["q"]["text"] == "one"
    assert finished["item"] == 1


def test_deriving_is_deterministic_and_the_same_in_two_parts() -> None:
    """The same events give the same document, whole or from any point on."""
    case = given(NESTED).started()
    for text in ("one", "two", "three"):
        case.when(case.answer(text=text))
    whole = to_json(derive_state(case.events))
    assert to_json(derive_state(list(case.events))) == whole
    for cut in range(len(case.events) + 1):
        start = (
            from_json(orjson.loads(orjson.dumps(to_json(derive_state(case.events[:cut])))))
            if cut
            else State()
        )
        assert to_json(derive_state(case.events[cut:], start)) == whole


# --- checkpoints -----------------------------------------------------------------------------------------------


async def test_between_nodes_without_a_pause_everything_goes_on(office: Office) -> None:
    """Nobody pauses: no `flow:paused`, and each node does its work once."""
    async with office.started(TWO) as desk:
        await finish(desk, office, ["a", "b"])
        assert "flow:paused" not in await desk.types()
    assert office.done == ["a", "b"]


async def test_a_pause_at_a_checkpoint_stores_the_position(office: Office) -> None:
    """Paused after the first node: the event and the state name the second, and its work was not done."""
    async with office.started(TWO) as desk:
        await desk.work("a")
        state = await desk.pause()
        assert (state.status, state.phase) == ("paused", "held")
        (paused,) = [event for event in await desk.engine.journal(SESSION) if event.type == "flow:paused"]
        assert (paused.path, paused.reason) == ("b", "lunch")
        assert (await desk.derived())["currentNodeId"] == "b"
    assert office.done == ["a"]


async def test_pausing_twice_is_one_pause(office: Office) -> None:
    """The second pause changes nothing: one `flow:paused`, the first reason."""
    async with office.started(TWO) as desk:
        await desk.pause("first")
        state = await desk.pause("second")
        assert state.pause_reason == "first"
        assert (await desk.types()).count("flow:paused") == 1
    assert office.done == []


async def test_pauses_that_race_are_one_pause(office: Office) -> None:
    """Five at once: one event, nobody sees an error, and one resume is enough."""
    async with office.started(TWO) as desk:
        await asyncio.gather(*(desk.pause(str(number)) for number in range(5)))
        assert (await desk.types()).count("flow:paused") == 1
        await desk.resume()
        await finish(desk, office, ["a", "b"])


# --- pausing inside containers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "count", "before"),
    [
        pytest.param(3, 1, [], id="at iteration 0"),
        pytest.param(10, 1, children(range(5), 1), id="at iteration 5 of 10"),
        pytest.param(2, 3, ["each[0]/c0"], id="at child 1 of 3"),
        pytest.param(
            2,
            3,
            [*children([0], 3), "each[1]/c0", "each[1]/c1"],
            id="at the last child of the last iteration",
        ),
    ],
)
async def test_a_pause_inside_a_foreach_resumes_right_there(
    office: Office, items: int, count: int, before: list[str]
) -> None:
    """A fresh engine continues with the child that was next; no iteration starts twice, nothing is done twice."""
    every = children(range(items), count)
    async with office.started(each(items, count)) as desk:
        await desk.work(*before)
        await desk.pause()
        (frame,) = await desk.stack()
        position = len(before)
        assert (frame["iterationIndex"], frame["childIndex"]) == divmod(position, count)
        assert len(frame["completedIterations"]) == position // count
    async with office.open() as desk:
        await desk.resume()
        await finish(desk, office, [*every[position:], "z"])
        types = await desk.types()
        assert types.count("container:iterationStarted") == items
        assert types.count("container:iterationCompleted") == items
        outputs = (await desk.state()).nodes["each"].output
        assert [entry["index"] for entry in outputs["iterations"]] == list(range(items))
    assert office.done == [*every, "z"]


THREE = f"""
nodes:
  - id: a
    type: foreach
    with: {{items: [0, 1]}}
    body:
      - id: b
        type: foreach
        with: {{items: [0, 1]}}
        body: [{{id: c, type: foreach, with: {{items: [0, 1]}}, body: [{{id: w, {SAFE}}}]}}]
"""


async def test_a_pause_three_levels_deep_resumes_right_there(office: Office) -> None:
    """In the middle of the innermost loop: three frames, each at its own place, and the rest is done once."""
    every = [f"a[{x}]/b[{y}]/c[{z}]/w" for x in (0, 1) for y in (0, 1) for z in (0, 1)]
    async with office.started(THREE) as desk:
        await desk.work(*every[:5])
        await desk.pause()
        stack = await desk.stack()
        assert [(frame["nodeId"], frame["iterationIndex"]) for frame in stack] == [
            ("a", 1),
            ("b", 0),
            ("c", 1),
        ]
    async with office.open() as desk:
        await desk.resume()
        await finish(desk, office, every[5:])
    assert office.done == every


async def test_an_empty_list_is_done_at_once(office: Office) -> None:
    """No iterations, no children, an empty output; a pause behind it finds it complete."""
    async with office.started(each(0, 1)) as desk:
        await desk.pause()
        assert await desk.stack() == []
        assert (await desk.state()).nodes["each"].output == {"iterations": []}
    async with office.open() as desk:
        await desk.resume()
        await finish(desk, office, ["z"])
    assert office.done == ["z"]


async def test_a_pause_in_a_container_inside_a_switch(office: Office) -> None:
    """The case that was taken stays taken, and the loop in it continues where it was."""
    text = f"""
nodes:
  - id: pick
    type: switch
    with: {{on: b}}
    cases:
      a: [{{id: never, {SAFE}}}]
      b: [{{id: each, type: foreach, with: {{items: [0, 1]}}, body: [{{id: w, {SAFE}}}]}}]
"""
    async with office.started(text) as desk:
        await desk.work("pick[b]/each[0]/w")
        await desk.pause()
    async with office.open() as desk:
        await desk.resume()
        await finish(desk, office, ["pick[b]/each[1]/w"])
        assert (await desk.state()).nodes["pick"].output["case"] == "b"
    assert office.done == ["pick[b]/each[0]/w", "pick[b]/each[1]/w"]


async def test_a_pause_in_a_loop_inside_a_foreach(office: Office) -> None:
    """The rounds that were done stay done, in this item and for the next one."""
    text = f"""
nodes:
  - id: each
    type: foreach
    with: {{items: [0, 1]}}
    body: [{{id: again, type: loop, with: {{while: "{{{{ index < 3 }}}}"}}, body: [{{id: w, {SAFE}}}]}}]
"""
    every = [f"each[{item}]/again[{turn}]/w" for item in (0, 1) for turn in (0, 1, 2)]
    async with office.started(text) as desk:
        await desk.work(*every[:2])
        await desk.pause()
    async with office.open() as desk:
        await desk.resume()
        await finish(desk, office, every[2:])
    assert office.done == every


async def test_a_pause_behind_a_loop_edge_inside_a_foreach(office: Office) -> None:
    """The visits that a loop edge opened stay counted: each item goes back once, before and after the resume."""
    text = f"""
nodes:
  - id: each
    type: foreach
    with: {{items: [0, 1]}}
    body: [{{id: a, {SAFE}}}, {{id: b, {SAFE}}}]
    edges:
      - {{from: a, to: b}}
      - {{from: b, to: a, type: loop, max_iterations: 1, on_limit: continue, when: "{{{{ true }}}}"}}
"""
    every = [f"each[{item}]/{name}{visit}" for item in (0, 1) for visit in ("", "~2") for name in "ab"]
    async with office.started(text) as desk:
        await desk.work(*every[:3])
        await desk.pause()
        assert (await desk.engine.inspect(SESSION))["loopCounters"] == {"each[0]/b>a": 1}
    async with office.open() as desk:
        await desk.resume()
        await finish(desk, office, every[3:])
        assert (await desk.types()).count("loop:iterate") == 2
    assert office.done == every


async def test_a_second_pause_in_the_same_iteration_keeps_what_is_done(office: Office) -> None:
    """Paused again and again inside one iteration: every child is done once, the iteration starts once."""
    every = children([0], 4)
    async with office.started(each(1, 4)) as desk:
        await desk.pause()
    for path in every:
        async with office.open() as desk:
            await desk.resume()
            await desk.work(path)
            await desk.pause()
    async with office.open() as desk:
        await desk.resume()
        await finish(desk, office, ["z"])
        assert (await desk.types()).count("container:iterationStarted") == 1
    assert office.done == [*every, "z"]


# --- stale and corrupt frames ------------------------------------------------------------------------------------


async def journal_in_an_iteration(office: Office) -> list[Event]:
    """The events up to a pause in the second of three iterations."""
    async with office.started(each(3, 2)) as desk:
        await desk.work("each[0]/c0", "each[0]/c1", "each[1]/c0")
        await desk.pause()
        return await desk.engine.journal(SESSION)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"type": "container:iterationStarted", "index": 7}, id="an iteration out of range"),
        pytest.param(
            {"type": "container:iterationStarted", "path": "other"}, id="a container that is not there"
        ),
        pytest.param({"type": "container:childStarted", "path": "each[9]/c0"}, id="a child of no iteration"),
        pytest.param(
            {"type": "container:childCompleted", "path": "each[0]/c9"}, id="a child that never started"
        ),
        pytest.param(
            {"type": "container:iterationCompleted", "scope": "each[5]"}, id="an iteration that never began"
        ),
    ],
)
async def test_frames_that_do_not_fit_are_refused(office: Office, changes: dict[str, str]) -> None:
    """An event about a place that is not there is refused by name and position, never clamped or skipped."""
    events = await journal_in_an_iteration(office)
    number = max(index for index, event in enumerate(events) if event.type == changes["type"])
    bad = replace(events[number], **{key: value for key, value in changes.items() if key != "type"})
    with pytest.raises(MalformedJournal, match=f"event {bad.seq} "):
        derive_state([*events[:number], bad, *events[number + 1 :]])


async def test_a_stale_snapshot_is_refused_and_the_session_goes_on(office: Office) -> None:
    """A file from before later work names both positions; nothing is changed, and the session itself resumes."""
    async with office.started(each(2, 1)) as desk:
        await desk.work("each[0]/c0")
        await desk.pause()
        stale = await desk.engine.export(SESSION)
        await desk.resume()
        await desk.work("each[1]/c0")
        await desk.pause()
        before = await desk.types()
        with pytest.raises(SnapshotRefused, match="resume the session itself"):
            await desk.engine.resume_from_snapshot(stale, message="go on", actor=ANA)
        assert await desk.types() == before
        await desk.resume()
        await finish(desk, office, ["z"])
    assert office.done == ["each[0]/c0", "each[1]/c0", "z"]


async def test_a_corrupt_snapshot_is_refused(office: Office) -> None:
    """One changed frame in the file: refused by its signature, and nothing was done."""
    async with office.started(each(2, 1)) as desk:
        await desk.work("each[0]/c0")
        await desk.pause()
        file = orjson.loads(await desk.engine.export(SESSION))
        file["state"]["frames"]["each[1]"]["position"] = 9
        with pytest.raises(SnapshotRefused, match="changed"):
            await desk.engine.resume_from_snapshot(orjson.dumps(file))
        await desk.resume()
        await finish(desk, office, ["each[1]/c0", "z"])


# --- pausing and resuming: the acceptance scenarios and edge cases -----------------------------------------------------


async def test_a_pause_stops_the_running_node_and_says_where(office: Office) -> None:
    """Scenario 1.1 and 1.2: the running node gets the signal and leaves, `flow:paused` has the session's place."""
    async with office.started(TWO) as desk:
        state = await desk.pause()
        types = await desk.types()
        assert types[-2:] == ["node:interrupted", "flow:paused"]
        assert state.nodes["a"].status == "interrupted"
    assert office.done == []


async def test_a_paused_session_is_paused_and_not_aborted(office: Office) -> None:
    """Scenario 1.3: the status says that it can continue."""
    async with office.started(TWO) as desk:
        await desk.pause()
        assert (await desk.engine.head(SESSION)).status == "paused"
        assert (await desk.engine.inspect(SESSION))["status"] == "paused"


async def test_a_resume_goes_on_from_the_paused_node_with_all_that_was_there(office: Office) -> None:
    """Scenarios 2.1 to 2.3: outputs and messages from before the pause are there, the node itself continues."""
    text = """
nodes:
  - {id: a, type: shell, with: {run: [do, early]}}
  - {id: b, type: shell, on_crash: again, with: {run: [do, "{{ nodes.a.stdout }}"]}}
  - {id: c, type: shell, with: {run: [do, "{{ messages | map(attribute='text') | join(', ') }}"]}}
"""
    async with office.started(text) as desk:
        await desk.work("a")
        await desk.engine.apply(SESSION, Message("from before", ANA, "key-1"))
        await desk.pause()
    async with office.open() as desk:
        await desk.resume("additional context")
        await finish(desk, office, ["b", "c"])
    assert office.done == ["a", "b", "c"]
    runs = [entry["config"]["run"] for entry in office.effects.all()]
    assert runs == [["do", "early"], ["do", "early"], ["do", "from before, additional context"]]


async def test_inspection_of_a_paused_session(office: Office) -> None:
    """Scenarios 4.1 and 4.2: the current node, the phase, and the outputs of the three completed nodes."""
    async with office.started(FOUR) as desk:
        await desk.work("n0", "n1", "n2")
        await desk.pause()
        shown = await desk.engine.inspect(SESSION)
        assert (shown["currentNodeId"], shown["phase"]) == ("n3", "held")
        assert sorted(shown["outputs"]) == ["n0", "n1", "n2"]
        assert all(output["stdout"] == "x" for output in shown["outputs"].values())


async def test_a_resume_of_an_unknown_session_is_an_error(office: Office) -> None:
    """Edge case: an id that is not there; the paused session stays paused."""
    async with office.started(TWO) as desk:
        await desk.pause()
        with pytest.raises(UnknownSession, match="session-none"):
            await desk.engine.resume("session-none", "go on", actor=ANA)
        assert (await desk.state()).status == "paused"


async def test_a_second_resume_changes_nothing(office: Office) -> None:
    """Edge case: the second call says that it runs already; no second event, no second start."""
    async with office.started(TWO) as desk:
        await desk.pause()
        await desk.resume()
        before = await desk.types()
        with pytest.raises(SessionRunning):
            await desk.resume()
        assert await desk.types() == before
        await finish(desk, office, ["a", "b"])


async def test_an_abort_of_a_paused_session_ends_it(office: Office) -> None:
    """Edge case: paused, then aborted: it has ended, cannot be resumed, and its messages are no longer delivered."""
    async with office.started(TWO) as desk:
        await desk.pause()
        state = await desk.engine.abort(SESSION, actor=ANA)
        assert state.status == "aborted"
        with pytest.raises(SessionEnded):
            await desk.resume()
    assert office.done == []


async def test_an_abort_after_the_end_changes_nothing(office: Office) -> None:
    """Edge case: the flow completed before the abort or the pause came: it stays complete."""
    async with office.started(TWO) as desk:
        await finish(desk, office, ["a", "b"])
        before = await desk.types()
        with pytest.raises(SessionEnded):
            await desk.engine.abort(SESSION, actor=ANA)
        with pytest.raises(SessionEnded):
            await desk.pause()
        assert await desk.types() == before
        assert (await desk.state()).status == "complete"


async def test_a_resume_needs_a_message(office: Office) -> None:
    """FR-004: an empty one is refused and the session stays paused."""
    async with office.started(TWO) as desk:
        await desk.pause()
        with pytest.raises(EmptyMessage):
            await desk.resume("  ")
        assert (await desk.state()).status == "paused"


async def test_a_resume_racing_an_abort_has_one_winner(office: Office) -> None:
    """Both at once: whatever comes first, the session ends aborted and does no more work."""
    async with office.started(TWO) as desk:
        await desk.pause()
        await asyncio.gather(desk.resume(), desk.engine.abort(SESSION, actor=ANA), return_exceptions=True)
        assert (await desk.engine.parked(SESSION)).status == "aborted"
        assert (await desk.types()).count("session:end") == 1
    assert office.done == []


# --- snapshots -----------------------------------------------------------------------------------------------------


async def test_a_snapshot_survives_its_serialisation(office: Office) -> None:
    """RFC, unit 1: reading what was written gives an equal state, inside containers too."""
    state = derive_state(await journal_in_an_iteration(office))
    assert from_json(orjson.loads(orjson.dumps(to_json(state)))) == state


async def test_a_resume_from_a_snapshot_runs_nothing_again(office: Office, tmp_path: Path) -> None:
    """RFC, unit 2 and crash simulation: all memory and the whole store are gone, only the file is left."""
    text = f"""
nodes:
  - {{id: a, {SAFE}}}
  - id: each
    type: foreach
    with: {{items: [0, 1]}}
    body: [{{id: q, type: ask, with: {{message: "{{{{ item }}}}?"}}}}, {{id: w, {SAFE}}}]
"""
    async with office.started(text) as desk:
        await desk.work("a")
        await desk.engine.resume(SESSION, "zero", actor=ANA)
        await desk.work("each[0]/w")
        await desk.engine.parked(SESSION)
        data, before = await desk.engine.export(SESSION), await desk.types()
        key = office.backing.key
    other = Office(tmp_path / "elsewhere")
    other.backing.open(key).close()
    async with other.open() as desk:
        await desk.engine.resume_from_snapshot(data, message="one", actor=ANA)
        await finish(desk, other, ["each[1]/w"])
        assert (await desk.types())[: len(before)] == before
        answers = (await desk.state()).nodes["each"].output["iterations"]
        assert [entry["outputs"]["q"]["text"] for entry in answers] == ["zero", "one"]
    assert (office.done, other.done) == (["a", "each[0]/w"], ["each[1]/w"])
