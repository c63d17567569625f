"""DESIGN.md section 10, row by row: where the specifications are silent, contradict each other or are wrong.

The rows about Slack's messages (22, 23 in part) are shown with the bot, in `tests/bot` and `tests/e2e`.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import orjson
import pytest
from msgspec.structs import replace

from engine.decide.commands import Answer, Hold, Message, NodeDone, Resume, Shown
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.snapshot import from_json, to_bytes, to_json
from engine.language import timestamps
from engine.language.errors import AlreadyAnswered, MalformedJournal, SessionQuarantined, SessionRunning
from engine.run import sessions
from engine.run.snapshot_files import SnapshotFiles
from tests.proof.desk import Office
from tests.support.engine import ANA, BEN, SESSION, START, Scenario, abandon, given, served

SAFE = "type: shell, on_crash: again, with: {run: [do, x]}"
LIST = f"nodes: [{{id: each, type: foreach, with: {{items: [0, 1, 2]}}, body: [{{id: a, {SAFE}}}, {{id: b, {SAFE}}}]}}]"
ASKS = """
nodes:
  - id: each
    type: foreach
    with: {items: [x, y]}
    body: [{id: v, type: set, with: {v: "{{ item }}"}}, {id: q, type: ask, with: {message: "{{ item }}?"}}]
"""
BOTH = """
nodes:
  - id: fan
    type: parallel
    branches: {l: [{id: p, type: ask, with: {message: "p?"}}], r: [{id: q, type: ask, with: {message: "q?"}}]}
"""


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """A store and a world that outlive engines."""
    return Office(tmp_path)


def reloaded(case: Scenario) -> Scenario:
    """The same session in another process, which has the stored document only."""
    case.state = from_json(orjson.loads(to_bytes(case.state)))
    return case.claimed()


# --- rows 1 to 9: events and frames ------------------------------------------------------------------------------


def test_row_1_a_resume_emits_no_second_start_of_an_iteration() -> None:
    """Three processes in one iteration: one `iterationStarted`, and its partial outputs are all there."""
    case = given(ASKS).started()
    for _ in range(3):
        reloaded(case)
    assert [event.type for event in case.events].count("container:iterationStarted") == 1
    assert case.node("each[0]/v").output == {"v": "x"}


async def test_row_2_the_journal_only_grows(office: Office) -> None:
    """What was there before each pause and resume stands unchanged at the beginning of what is there after it."""
    before: list[Event] = []
    async with office.started(LIST) as desk:
        await desk.pause()
    for path in ("each[0]/a", "each[0]/b", "each[1]/a"):
        async with office.open() as desk:
            await desk.resume()
            await desk.work(path)
            await desk.pause()
            journal = await desk.engine.journal(SESSION)
            assert journal[: len(before)] == before
            assert len(journal) > len(before)
            before = journal


async def test_row_3_later_iterations_begin_at_their_beginning(office: Office) -> None:
    """Resumed behind the first child: the next iterations run theirs from the first one on."""
    async with office.started(LIST) as desk:
        await desk.work("each[0]/a")
        await desk.pause()
    async with office.open() as desk:
        await desk.resume()
        await desk.work("each[0]/b", "each[1]/a", "each[1]/b", "each[2]/a", "each[2]/b")
        assert (await desk.engine.parked(SESSION)).status == "complete"
    assert office.done == [f"each[{index}]/{child}" for index in range(3) for child in "ab"]


async def test_row_4_a_sibling_container_gets_no_frame_that_is_not_its_own(office: Office) -> None:
    """Two lists side by side, one far ahead: after a resume each continues at its own place."""
    body = f"body: [{{id: %s, {SAFE}}}]"
    text = f"""
nodes:
  - id: fan
    type: parallel
    branches:
      l: [{{id: one, type: foreach, with: {{items: [0, 1]}}, {body % "a"}}}]
      r: [{{id: two, type: foreach, with: {{items: [0, 1]}}, {body % "b"}}}]
"""
    async with office.started(text) as desk:
        await desk.work("fan[l]/one[0]/a")
        await desk.pause()
    async with office.open() as desk:
        await desk.resume()
        await desk.work("fan[r]/two[0]/b", "fan[r]/two[1]/b", "fan[l]/one[1]/a")
        assert (await desk.engine.parked(SESSION)).status == "complete"
    assert len(office.done) == len(set(office.done)) == 4


async def test_row_5_recursion_has_a_frame_for_each_depth(office: Office) -> None:
    """A flow that calls itself, paused at its deepest: every depth has its own frame, and all of them end."""
    text = "nodes: [{id: go, type: flow, with: {flow: down, inputs: {n: 2}}}]"
    async with office.started(text) as desk:
        await desk.work("go/work", "go/deeper/work")
        await desk.pause()
    async with office.open() as desk:
        await desk.resume()
        questions = [p.prompt_id for p in (await desk.state()).prompts.values() if p.status == "requested"]
        for prompt_id in questions:
            await desk.engine.resume(SESSION, Answer(prompt_id, ANA, "answer:20", value="again"))
        assert [frame["path"] for frame in await desk.stack()] == ["go", "go/deeper", "go/deeper/deeper"]
        await desk.work("go/deeper/deeper/work")
        assert (await desk.engine.parked(SESSION)).status == "complete"
    assert office.done == ["go/work", "go/deeper/work", "go/deeper/deeper/work"]


def test_row_6_a_container_that_is_over_stays_over() -> None:
    """Start and end of a container are events; derived after its last iteration it does not run again."""
    case = given(ASKS + "  - {id: w, type: wait, with: {for: 1m}}").started()
    case.when(case.answer(text="1"))
    case.when(case.answer(text="2"))
    types = [event.type for event in case.events]
    assert (types.count("container:started"), types.count("container:completed")) == (1, 1)
    before = len(case.events)
    reloaded(case)
    assert len(case.events) == before
    assert case.node("each").status == "completed"


def test_row_7_the_cursor_moves_with_each_completed_child() -> None:
    """The frame's position is behind what has completed, in the state as derived."""
    case = given(ASKS).started()
    assert derive_state(case.events).frames["each[0]"].position == 1
    case.when(case.answer(text="1"))
    assert "each[0]" not in case.state.frames
    assert case.state.frames["each[1]"].position == 1


def test_row_8_a_loop_keeps_its_count() -> None:
    """Reloaded after every round, a loop of three rounds still has three."""
    text = """
nodes: [{id: l, type: loop, with: {while: "{{ index < 3 }}"}, body: [{id: q, type: ask, with: {message: "?"}}]}]
"""
    case = given(text).started()
    for number in range(3):
        assert case.prompt.path == f"l[{number}]/q"
        reloaded(case).when(case.answer(text="on"))
    assert case.state.status == "complete"
    assert len(case.node("l").output["iterations"]) == 3


def test_row_9_a_failure_is_in_the_derived_state() -> None:
    """`node:error` is folded: the node is failed, its output is null, and a reload does not run it again."""
    text = """
nodes: [{id: f, type: fail, on_error: continue, with: {message: no}}, {id: q, type: ask, with: {message: "?"}}]
"""
    case = reloaded(given(text).started())
    run = derive_state(case.events).nodes["f"]
    assert (run.status, run.output, run.error) == ("failed", None, {"type": "fail", "message": "no"})
    assert [event.type for event in case.events].count("node:started") == 2


# --- rows 10 to 16: deriving, pausing, and what the state holds --------------------------------------------------------


def test_row_10_deriving_reads_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every clock broken, the journal folds to the same state."""
    case = given(ASKS).started()

    def broken(*args: object) -> float:
        raise AssertionError("the fold looked at the clock")

    monkeypatch.setattr(time, "time", broken)
    monkeypatch.setattr(timestamps, "to_text", broken)
    assert derive_state(case.events) == case.state


async def test_row_11_neither_retry_nor_on_error_sees_a_pause(office: Office) -> None:
    """A child with both is cut by a pause: no `node:error`, no `node:retried`, and it runs at the resume."""
    text = """
nodes:
  - id: each
    type: foreach
    with: {items: [0]}
    body:
      - {id: a, type: shell, on_crash: again, on_error: continue, retry: {attempts: 2}, with: {run: [do, x]}}
"""
    async with office.started(text) as desk:
        await desk.pause()
        types = await desk.types()
        assert not {"node:error", "node:retried"} & set(types)
    async with office.open() as desk:
        await desk.resume()
        await desk.work("each[0]/a")
        assert (await desk.state()).nodes["each"].output["iterations"][0]["outputs"]["a"]["stdout"] == "x"
    assert office.done == ["each[0]/a"]


async def test_row_12_the_pause_is_told_once_and_after_its_commit(office: Office) -> None:
    """Subscribers hear one `flow:paused`, and by then the store has it."""
    async with office.started(LIST) as desk:
        heard: list[int] = []
        desk.engine.subscribe(
            lambda state, events: heard.extend(event.seq for event in events if event.type == "flow:paused")
        )
        await desk.pause()
        (seq,) = heard
        stored = [decode_event(row) for row in desk.rig.store.sessions.journal(SESSION)]
        assert [event.seq for event in stored if event.type == "flow:paused"] == [seq]


def test_row_13_items_are_frozen_when_the_container_starts() -> None:
    """What the expression would give later does not matter: the items of the state are those of the start."""
    text = """
nodes:
  - id: each
    type: foreach
    with: {items: "{{ messages | map(attribute='text') | list }}"}
    body: [{id: c, type: approval, with: {message: "{{ item }}?", approvers: [channel]}}]
"""
    case = given(text.replace("nodes:\n", "nodes:\n  - {id: w, type: wait, with: {for: 1m}}\n"))
    case.started().when(case.message("one"), case.message("two"))
    case.later(60).when(case.timer_due())
    case.when(case.message("three"))
    document = to_json(reloaded(case).state)
    assert document["containers"]["each"]["items"] == ["one", "two"]
    assert document["inputs"] == {}
    assert document["flowDigest"] == case.flow.digest


def test_row_14_a_frame_out_of_range_is_refused() -> None:
    """An iteration that cannot be next is refused and named; nothing is clamped."""
    case = given(ASKS).started()
    number = next(i for i, event in enumerate(case.events) if event.type == "container:iterationStarted")
    bad = replace(case.events[number], index=2)
    with pytest.raises(MalformedJournal, match="its index is 0, not 2"):
        derive_state([*case.events[:number], bad])


@pytest.mark.parametrize("output", [{"at": object()}, {"x": float("nan")}, {"x": {1, 2}}])
def test_row_15_an_output_that_is_no_json_is_refused_at_the_node(output: object) -> None:
    """The node fails and is named; the session is whole."""
    case = given("nodes: [{id: a, type: shell, with: {run: [ls]}}]").started()
    case.when(NodeDone("a", 1, output))
    assert case.node("a").status == "failed"
    assert "a" in (case.node("a").error or {})["message"]
    assert derive_state(case.events) == case.state


def test_row_16_an_output_stands_once() -> None:
    """An answer is in its own event, in the one of the resume and in the outcome of its node; the ends of the
    iteration and of the container do not say it again."""
    case = given(ASKS).started()
    case.when(case.answer(text="a very remarkable answer"))
    case.when(case.answer(text="another"))
    holding = [e.type for e in case.events if b"a very remarkable answer" in e.to_bytes()]
    assert set(holding) <= {"prompt:answered", "flow:resumed", "container:childCompleted"}


# --- rows 17 to 20: sessions, messages, and who comes second ------------------------------------------------------------


async def test_row_17_a_session_is_found_again_at_the_start(office: Office) -> None:
    """Nobody names it: a fresh process finds the session that ran, and continues."""
    async with office.started(LIST) as desk:
        await desk.work("each[0]/a")
        abandon(desk.rig.store)
    async with office.open() as desk, served(desk.engine):
        await desk.work("each[0]/b", "each[1]/a", "each[1]/b", "each[2]/a", "each[2]/b")
        assert (await desk.engine.parked(SESSION)).status == "complete"
    assert len(office.done) == len(set(office.done)) == 6


def test_row_18_the_message_of_a_resume_is_kept_once_and_stands_last() -> None:
    """After what was said before the pause; a second delivery under the same key changes nothing."""
    case = given("nodes: [{id: w, type: wait, with: {for: 1m}}]").started()
    case.when(case.message("before"))
    case.when(Hold(ANA, "lunch"))
    resume = Resume("after", ANA, "key-r")
    case.when(resume).when(resume)
    assert [message["text"] for message in case.state.messages] == ["before", "after"]


async def test_row_19_of_two_resumes_one_wins_and_the_other_hears_so(office: Office) -> None:
    """At once, in one process: one goes through, one gets `SessionRunning`; one event."""
    async with office.started(LIST) as desk:
        await desk.pause()
        results = await asyncio.gather(desk.resume("one"), desk.resume("two"), return_exceptions=True)
        assert [type(result) for result in results if isinstance(result, BaseException)] == [SessionRunning]
        assert (await desk.types()).count("flow:resumed") == 1


def test_row_19_of_two_answers_one_wins_and_the_other_hears_who() -> None:
    """The second is told who answered, and nothing changes."""
    case = given("nodes: [{id: q, type: ask, with: {message: '?', choices: [a, b]}}]").started()
    first, second = case.answer("a"), case.answer("b", actor=BEN)
    case.when(first)
    assert "ana" in case.refused(second, AlreadyAnswered)
    assert case.node("q").output["value"] == "a"


async def test_row_20_without_its_snapshot_a_session_is_rebuilt_from_the_journal(office: Office) -> None:
    """Every snapshot deleted: the same state, and the run continues where it was."""
    async with office.started(ASKS) as desk:
        before = await desk.engine.parked(SESSION)
    outside = office.backing.connect()
    outside.execute("DELETE FROM snapshots")
    assert outside.changes()
    outside.close()
    async with office.open() as desk:
        assert (await desk.engine.state(SESSION)).frames == before.frames
        await desk.engine.resume(SESSION, "1", actor=ANA)
        await desk.engine.resume(SESSION, "2", actor=ANA)
        assert (await desk.state()).status == "complete"


async def test_row_20_a_bad_journal_is_set_aside_and_never_run_cold(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that cannot be folded: the session is quarantined with the reason, and nothing is done."""
    async with office.started(LIST) as desk:
        await desk.pause()

    def refuse(loaded: object) -> object:
        raise MalformedJournal("event 3 (node:started): a is there already")

    async with office.open() as desk:
        monkeypatch.setattr(sessions, "fold", refuse)
        monkeypatch.setattr(sessions, "derive_state", refuse)
        with pytest.raises(SessionQuarantined, match="event 3"):
            await desk.engine.apply(SESSION, Message("go on", ANA, "key-1"))
        head = desk.rig.store.sessions.head(SESSION)
        assert head is not None
        assert head.quarantined is not None
    assert office.done == []


# --- rows 21 to 28 --------------------------------------------------------------------------------------------------------


def test_row_21_no_id_leads_out_of_the_snapshot_folder(tmp_path: Path) -> None:
    """A name from an id is one file name, whatever is in it."""
    files = SnapshotFiles(tmp_path)
    for name in ("../../etc/passwd", "a:b/c", "..", "x\x00y"):
        assert files.path(name).parent == tmp_path
        assert files.path(name).name.endswith(".json")
        assert "/" not in files.path(name).name.replace("%2F", "")


@pytest.mark.parametrize("order", [("fan[l]/p", "fan[r]/q"), ("fan[r]/q", "fan[l]/p")])
def test_row_22_several_questions_are_open_and_answered_in_any_order(order: tuple[str, str]) -> None:
    """Both have an id of their own; each answer goes to its own node."""
    case = given(BOTH).started()
    ids = {case.state.prompts[key].path: key for key in case.state.open_prompts}
    assert sorted(ids) == ["fan[l]/p", "fan[r]/q"]
    for path in order:
        reloaded(case).when(Answer(ids[path], ANA, f"key:{path}", text=f"to {path}"))
    branches = case.node("fan").output["branches"]
    assert branches["l"]["p"]["text"] == "to fan[l]/p"
    assert branches["r"]["q"]["text"] == "to fan[r]/q"


def test_row_23_a_session_is_paused_when_nothing_else_can_run() -> None:
    """A branch waits: it parks, the other runs on, and only then is there a `flow:paused`."""
    text = """
nodes:
  - id: fan
    type: parallel
    branches: {l: [{id: q, type: ask, with: {message: "?"}}], r: [{id: a, type: shell, with: {run: [ls]}}]}
"""
    case = given(text).started()
    assert "flow:paused" not in [event.type for event in case.last]
    case.when(NodeDone("fan[r]/a", 1, {}))
    assert case.state.phase == "waiting"
    assert [event.type for event in case.last][-1] == "flow:paused"


@pytest.mark.parametrize(
    ("limits", "own", "seconds"),
    [
        ("", "", 30 * 86400),
        ("limits: {deadline: 2h}\n", "", 7200),
        ("limits: {deadline: 2h}\n", ", timeout: 5m", 300),
    ],
)
def test_row_24_there_is_one_deadline_and_it_is_the_prompts(limits: str, own: str, seconds: int) -> None:
    """Its own timeout, else the flow's deadline, else thirty days; then the node fails."""
    case = given(f"{limits}nodes: [{{id: q, type: ask, with: {{message: '?'{own}}}}}]").started()
    case.when(Shown(case.prompt.prompt_id, {"ts": "1"}))
    assert case.prompt.deadline == timestamps.after(START, seconds)
    case.later(seconds).when(case.timer_due())
    assert case.node("q").status == "failed"


def test_row_25_a_secret_is_a_reference_in_everything_that_is_stored() -> None:
    """The journal and the state name the secret and never hold its value."""
    text = "nodes: [{id: a, type: shell, with: {run: [ls], env: {TOKEN: '{{ secrets.TOKEN }}'}}}]"
    case = given(text).started()
    config = case.node("a").input
    assert "TOKEN" in orjson.dumps(config).decode()
    assert config["env"]["TOKEN"] != "TOKEN"
    assert b"TOKEN" in to_bytes(case.state)


async def test_row_26_a_running_node_hears_of_the_pause_at_once(office: Office) -> None:
    """A node that listens has left, and the session is held, within a second."""
    async with office.started(LIST) as desk:
        began = time.monotonic()
        assert (await desk.pause()).phase == "held"
        assert time.monotonic() - began < 1


async def test_row_27_a_waiting_node_shows_that_it_waits(office: Office) -> None:
    """A paused event is written, and inspection shows `{awaiting: true, promptId}` as its output."""
    async with office.started(ASKS) as desk:
        state = await desk.engine.parked(SESSION)
        shown = await desk.engine.inspect(SESSION)
        (prompt_id,) = state.open_prompts
        assert shown["outputs"]["each[0]/q"] == {"awaiting": True, "promptId": prompt_id}
        assert (await desk.types())[-1] == "flow:paused"


def test_row_28_no_waves_and_no_requested_checks() -> None:
    """The frames say it."""
    assert not {"wave", "requestedChecks"} & set(to_json(given(ASKS).started().state))
