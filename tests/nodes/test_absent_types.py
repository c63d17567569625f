"""A session whose node type was uninstalled can be answered, paused, aborted and migrated; what needs the type waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from immutables import Map

from bot.compose.environment import Needs, needs
from engine.decide.commands import Answer
from engine.decide.past import MigrationRefused
from engine.flow import Flow
from engine.flow.load import flow_from_body, load_flow
from engine.journal.fold import derive_state
from engine.journal.state import State
from engine.language.errors import FlowError, InvalidAnswer
from engine.nodes.runtime.table import runners
from engine.nodes.types import registry
from tests.engine.agents.talks import Talk
from tests.nodes.gonekit import MODULE, Package
from tests.support.engine import ANA, Backing, EngineRig, flow_of, running, until

ASKS = """
nodes:
  - {id: q, type: ask, with: {message: Now?}}
  - {id: call, type: page, with: {who: "{{ nodes.q.text }}", token: "{{ secrets.T }}"}}
  - {id: end, type: set, with: {said: "{{ nodes.call.said }}"}}
"""
SECRET = "hunter2-hunter2"
REASON = "the node type `page` of the package pager is not installed here"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """The package, installed."""
    made = Package(tmp_path, monkeypatch)
    made.install()
    yield made
    made.remove()


@pytest.fixture
def backing(tmp_path: Path) -> Backing:
    """A database that outlives the engines on it."""
    return Backing("sqlite", tmp_path)


def engine(backing: Backing, tmp_path: Path) -> AbstractAsyncContextManager[EngineRig]:
    """An engine on it, as a new process has one."""
    return running(backing.open(), tmp_path / "home", runners=runners(), secret=lambda name: SECRET)


async def waiting(backing: Backing, tmp_path: Path, text: str = ASKS) -> str:
    """A session that a process left waiting for an answer."""
    async with engine(backing, tmp_path) as rig:
        return (await rig.settled(text)).session_id


@pytest.fixture
async def orphan(backing: Backing, tmp_path: Path, package: Package) -> str:
    """A session that waits for an answer, and the package of its next node is gone."""
    session_id = await waiting(backing, tmp_path)
    package.remove()
    return session_id


async def press(rig: EngineRig, session_id: str, value: str) -> State:
    """Press a button of the only open question."""
    prompt = await rig.open_prompt(session_id)
    await rig.engine.apply(
        session_id, Answer(prompt.prompt_id, ANA, f"press:{prompt.prompt_id}", value=value)
    )
    return await rig.engine.parked(session_id)


# --- reading -----------------------------------------------------------------------------------------------


def test_a_pinned_text_is_read_without_the_package(package: Package) -> None:
    """The pin names the package, so that whoever reads it without knows what is missing; nothing else is different."""
    flow = flow_of(ASKS)
    assert (flow.packages, flow.absent) == ({"page": "pager"}, {})
    assert flow_from_body(flow.body()) == flow
    package.remove()
    read = flow_from_body(flow.body())
    assert read.absent == {"page": REASON}
    assert (read.body(), read.digest, read.secrets) == (flow.body(), flow.digest, {"T"})
    assert [node.spec.mode for node in read.nodes] == ["prompt", "run", "pure"]


def test_a_flow_without_such_types_is_pinned_as_ever() -> None:
    """What no package has a part in names none."""
    flow = flow_of("nodes: [{id: a, type: noop}]")
    assert (flow.packages, b"types" in flow.body()) == ({}, False)


def test_a_new_text_is_refused_without_the_package(package: Package) -> None:
    """Only what a session pinned is read so; a file, and a pin that names no package, must be sound."""
    flow = flow_of(ASKS)
    package.remove()
    with pytest.raises(FlowError, match="unknown node type `page`"):
        flow_of(ASKS)
    with pytest.raises(FlowError, match="unknown node type `page`"):
        flow_from_body(flow.body().replace(b'"page":', b'"other":'))


def test_types_of_called_flows_and_of_tools_are_pinned_too(package: Package) -> None:
    """The packages of all texts stand in the pin, and what is gone is known of the whole."""
    inner = load_flow("flow: inner\nnodes: [{id: p, type: page, with: {who: ana}}]", "inner.yml")
    outer = """
flow: outer
tools:
  page_ana: {type: page, description: Pages ana., with: {who: ana}}
nodes:
  - {id: call, type: flow, with: {flow: inner}}
"""
    flow = load_flow(outer, "outer.yml", flows={"inner": inner}.get)
    alone = load_flow(outer.replace("flow, with: {flow: inner}", "noop"), "outer.yml")
    package.remove()
    assert list(flow_from_body(flow.body()).absent) == ["page"]
    assert list(flow_from_body(alone.body()).absent) == ["page"]


@pytest.mark.parametrize(
    ("release", "reason"),
    [
        ("import not_there", "of the package pager cannot be used: ModuleNotFoundError"),
        (MODULE.replace("who: str", "whom: str"), "of the package pager does not take this any more: "),
    ],
)
def test_a_broken_or_changed_package_counts_as_gone(package: Package, release: str, reason: str) -> None:
    """A release that cannot be imported, or that takes other fields, leaves the session readable and says why."""
    body = flow_of(ASKS).body()
    package.write(release)
    package.install()
    assert reason in flow_from_body(body).absent["page"]
    registry.forget()


# --- getting rid of it, and saving it ----------------------------------------------------------------------


async def test_it_is_aborted(backing: Backing, tmp_path: Path, orphan: str) -> None:
    """Abort ends it, as any other session."""
    async with engine(backing, tmp_path) as rig:
        state = await rig.engine.abort(orphan, actor=ANA)
        assert (state.status, state.phase) == ("aborted", "ended")


async def test_it_is_paused_and_resumed(backing: Backing, tmp_path: Path, orphan: str) -> None:
    """Pause holds it, and resume lets it wait again for its answer."""
    async with engine(backing, tmp_path) as rig:
        assert (await rig.engine.pause(orphan, actor=ANA)).phase == "held"
        state = await rig.engine.resume(orphan, "go on", actor=ANA)
        assert (state.phase, len(state.open_prompts)) == ("waiting", 1)


async def test_it_goes_on_with_a_text_without_the_type(backing: Backing, tmp_path: Path, orphan: str) -> None:
    """Migrated before its node's turn comes, it never asks for the type."""
    text = ASKS.replace("{id: call, type: page", "{id: call, type: set").replace(
        'who: "{{ nodes.q.text }}", token: "{{ secrets.T }}"', 'said: "told {{ nodes.q.text }}"'
    )
    async with engine(backing, tmp_path) as rig:
        await rig.engine.migrate(orphan, flow_of(text), actor=ANA)
        await rig.reply(orphan, "ben")
        state = await rig.engine.parked(orphan)
        assert (state.status, state.nodes["end"].output) == ("complete", {"said": "told ben"})


async def test_a_text_that_needs_it_too_is_refused(
    backing: Backing, tmp_path: Path, package: Package
) -> None:
    """A migration asked for where the package is, and carried out where it is not, changes nothing."""
    session_id = await waiting(backing, tmp_path)
    body = flow_of(ASKS.replace("Now?", "Then?")).body()
    package.remove()
    new: Flow = flow_from_body(body)
    async with engine(backing, tmp_path) as rig:
        with pytest.raises(MigrationRefused, match="`page` of the package pager is not installed here"):
            await rig.engine.migrate(session_id, new, actor=ANA)
        assert (await rig.engine.state(session_id)).phase == "waiting"


REPLACED = (
    ASKS.replace("type: page", "type: set").replace("who:", "said:").replace(', token: "{{ secrets.T }}"', "")
)


async def test_a_node_that_waits_for_its_type_begins_as_what_a_new_text_has_there(
    backing: Backing, tmp_path: Path, orphan: str
) -> None:
    """The question about the type is withdrawn, and the run goes on with the new node's outcome."""
    async with engine(backing, tmp_path) as rig:
        await rig.reply(orphan, "ben")
        asked = await rig.open_prompt(orphan)
        made = await rig.engine.migrate(orphan, flow_of(REPLACED), actor=ANA)
        assert (made.anew, made.left_out, made.waits) == (["call"], [], {})
        state = await rig.engine.parked(orphan)
        assert (state.status, state.nodes["end"].output) == ("complete", {"said": "ben"})
        assert state.prompts[asked.prompt_id].status == "cancelled"
        assert derive_state(await rig.engine.journal(orphan)) == state


async def test_a_node_that_waits_for_its_type_is_left_out_of_a_text_without_it(
    backing: Backing, tmp_path: Path, orphan: str
) -> None:
    """It is skipped, also while the session is held; then nothing starts before somebody lets it go on."""
    async with engine(backing, tmp_path) as rig:
        await rig.reply(orphan, "ben")
        await rig.engine.pause(orphan, actor=ANA)
        text = "nodes: [{id: q, type: ask, with: {message: Now?}}, {id: end, type: set, with: {said: so}}]"
        made = await rig.engine.migrate(orphan, flow_of(text), actor=ANA)
        assert (made.anew, made.left_out, made.gone) == ([], ["call"], [])
        state = await rig.engine.state(orphan)
        assert (state.phase, state.nodes["call"].status, state.open_prompts) == ("held", "skipped", Map())
        await rig.engine.resume(orphan, "go on", actor=ANA)
        state = await rig.engine.parked(orphan)
        assert (state.status, state.nodes["end"].output) == ("complete", {"said": "so"})


async def test_one_in_a_loop_is_replaced_in_its_pass(
    backing: Backing, tmp_path: Path, package: Package
) -> None:
    """Passes before it keep their outcomes; those after it run the new text."""
    text = """
nodes:
  - id: each
    type: foreach
    with: {items: [a, b, c], as: it}
    body:
      - {id: q, type: ask, with: {message: "{{ it }}?"}}
      - {id: call, type: page, with: {who: "{{ it }}"}}
  - {id: end, type: set, with: {n: "{{ nodes.each.iterations | length }}"}}
"""
    session_id = await waiting(backing, tmp_path, text)
    async with engine(backing, tmp_path) as rig:
        await rig.reply(session_id, "one")
        await rig.engine.parked(session_id)
    package.remove()
    async with engine(backing, tmp_path) as rig:
        await rig.reply(session_id, "two")
        new = flow_of(text.replace("type: page, with: {who:", "type: set, with: {told:"))
        assert (await rig.engine.migrate(session_id, new, actor=ANA)).anew == ["each[1]/call"]
        await rig.reply(session_id, "three")
        state = await rig.engine.parked(session_id)
        assert state.status == "complete"
        outputs = [entry["outputs"]["call"] for entry in state.nodes["each"].output["iterations"]]
        assert outputs == [{"said": "paged a"}, {"told": "b"}, {"told": "c"}]


# --- when its turn comes -----------------------------------------------------------------------------------


async def test_an_answer_counts_and_the_node_waits_for_its_type(
    backing: Backing, tmp_path: Path, orphan: str, package: Package
) -> None:
    """People are told which package is missing; tried again without it they are asked again, and with it the node runs."""
    async with engine(backing, tmp_path) as rig:
        await rig.reply(orphan, "ben")
        state = await rig.engine.parked(orphan)
        assert (state.phase, state.nodes["q"].status) == ("waiting", "completed")
        assert (state.nodes["call"].status, state.nodes["call"].reason) == ("interrupted", "missing")
        first = await rig.open_prompt(orphan)
        assert first.kind == "interrupted"
        assert "the node type `page` of the package pager is not installed here" in first.message
        assert [option["value"] for option in first.options] == ["again", "skip", "abort"]
        await press(rig, orphan, "again")
        assert (await rig.open_prompt(orphan)).prompt_id != first.prompt_id
    package.install()
    async with engine(backing, tmp_path) as rig:
        state = await press(rig, orphan, "again")
        assert (state.status, state.nodes["end"].output) == ("complete", {"said": "paged ben"})
        assert package.ran() == ["call ben"]


@pytest.mark.parametrize("held", [False, True])
async def test_it_goes_on_by_itself_once_its_type_is_back(
    backing: Backing, tmp_path: Path, orphan: str, package: Package, held: bool
) -> None:
    """Taken up where the type is there again, the question is withdrawn and the node runs; one that is held waits for its
    resume, and one whose type is still missing stays as it is."""
    async with engine(backing, tmp_path) as rig:
        await rig.reply(orphan, "ben")
        asked = await rig.open_prompt(orphan)
        if held:
            await rig.engine.pause(orphan, actor=ANA)
    async with engine(backing, tmp_path) as rig:
        before = await rig.engine.journal(orphan)
        await rig.engine.apply(orphan, None)
        assert await rig.engine.journal(orphan) == before
        assert [list(needs(rig.store).lacking), needs(rig.store).back] == [[REASON], []]
    package.install()
    async with engine(backing, tmp_path) as rig:
        found = needs(rig.store)
        assert (found.lacking, [head.session_id for head in found.back]) == ({}, [orphan])
        await rig.engine.apply(orphan, None)
        state = await rig.engine.parked(orphan)
        assert state.prompts[asked.prompt_id].status == "cancelled"
        if held:
            assert (state.phase, package.ran()) == ("held", [])
            await rig.engine.resume(orphan, "go on", actor=ANA)
            state = await rig.engine.parked(orphan)
        assert (state.status, package.ran()) == ("complete", ["call ben"])
        assert needs(rig.store) == Needs()


async def test_it_can_be_left_out(backing: Backing, tmp_path: Path, package: Package) -> None:
    """`skip` gives the node no output, and the flow goes on behind it."""
    text = ASKS.replace('"{{ nodes.call.said }}"', '"{{ status.call }}"')
    session_id = await waiting(backing, tmp_path, text)
    package.remove()
    async with engine(backing, tmp_path) as rig:
        await rig.reply(session_id, "ben")
        state = await press(rig, session_id, "skip")
        assert (state.status, state.nodes["end"].output) == ("complete", {"said": "skipped"})


async def test_other_sessions_are_not_disturbed(backing: Backing, tmp_path: Path, orphan: str) -> None:
    """A session of another flow runs beside it, and one that stopped at the missing type is told of, not set aside."""
    async with engine(backing, tmp_path) as rig:
        await rig.reply(orphan, "ben")
        assert (await rig.settled("nodes: [{id: a, type: set, with: {x: 1}}]")).status == "complete"
        head = await rig.engine.head(orphan)
        assert (head.quarantined, head.status) == (None, "paused")


async def test_a_node_of_it_that_was_cut_is_asked_about(
    backing: Backing, tmp_path: Path, package: Package
) -> None:
    """What it gives when it is done is not known without its package, so `done` is refused; `again` waits for the type."""
    package.write(
        MODULE.replace("return {", "await __import__('asyncio').Event().wait()\n            return {")
    )
    package.install()
    async with engine(backing, tmp_path) as rig:
        session_id = await rig.start(
            ASKS.replace("{id: q, type: ask, with: {message: Now?}}", "{id: q, type: set, with: {text: ben}}")
        )
        await until(lambda: package.ran() == ["call ben"])
    package.remove()
    async with engine(backing, tmp_path) as rig:
        await rig.engine.apply(session_id, None)
        prompt = await rig.open_prompt(session_id)
        assert [option["value"] for option in prompt.options] == ["done", "again", "abort"]
        with pytest.raises(InvalidAnswer, match="`page` of the package pager is not installed here"):
            await press(rig, session_id, "done")
        state = await press(rig, session_id, "again")
        assert state.nodes["call"].reason == "missing"


async def test_what_runs_at_the_end_asks_nobody(backing: Backing, tmp_path: Path, package: Package) -> None:
    """In `finally` a node whose type is gone fails with the reason, and the session ends."""
    text = "nodes: [{id: q, type: ask, with: {message: Now?}}]\nfinally: [{id: call, type: page, with: {who: ana}}]\n"
    session_id = await waiting(backing, tmp_path, text)
    package.remove()
    async with engine(backing, tmp_path) as rig:
        await rig.engine.abort(session_id, actor=ANA)
        state = await rig.engine.parked(session_id)
        assert (state.status, state.nodes["finally/call"].status) == ("aborted", "failed")
        assert "is not installed here, and `finally` asks nobody" in str(state.nodes["finally/call"].error)


COVERED = """
nodes:
  - {id: q, type: ask, with: {message: Now?}}
  - {id: gate, type: approval, with: {message: Sure?, approvers: [U0ANA], covers: call}}
  - {id: call, type: page, with: {who: ana}}
"""


async def test_an_approval_waits_for_the_type_of_what_it_approves(
    backing: Backing, tmp_path: Path, package: Package
) -> None:
    """Nobody is asked to approve what cannot be shown; once the type is back it is shown, approved, and run."""
    session_id = await waiting(backing, tmp_path, COVERED)
    package.remove()
    async with engine(backing, tmp_path) as rig:
        await rig.reply(session_id, "yes")
        prompt = await rig.open_prompt(session_id)
        assert (prompt.kind, prompt.path) == ("interrupted", "gate")
    package.install()
    async with engine(backing, tmp_path) as rig:
        await press(rig, session_id, "again")
        assert (await rig.open_prompt(session_id)).covers["nodeId"] == "call"
        state = await press(rig, session_id, "approve")
        assert (state.status, package.ran()) == ("complete", ["call ana"])


async def test_an_approval_that_was_given_still_counts_when_the_type_is_back(
    backing: Backing, tmp_path: Path, package: Package
) -> None:
    """What was approved is compared with what runs once that is known again."""
    session_id = await waiting(backing, tmp_path, COVERED)
    async with engine(backing, tmp_path) as rig:
        await rig.reply(session_id, "yes")
    package.remove()
    async with engine(backing, tmp_path) as rig:
        await press(rig, session_id, "approve")
        assert (await rig.open_prompt(session_id)).path == "call"
    package.install()
    async with engine(backing, tmp_path) as rig:
        state = await press(rig, session_id, "again")
        assert (state.status, package.ran()) == ("complete", ["call ana"])


TOOLS = """
tools:
  page_ana: {type: page, description: Pages ana., with: {who: ana}}
nodes:
  - {id: helper, type: agent, with: {prompt: "Why?", tools: [page_ana]}}
"""


def test_a_model_is_told_that_its_tool_cannot_be_used(package: Package) -> None:
    """The conversation goes on with the tools that it was begun with; a call of that one is refused, with why."""
    body = flow_of(TOOLS).body()
    package.remove()
    case = Talk(flow_from_body(body)).started().model("Let me page.", ("page_ana", {}))
    assert REASON in case.said()
    case.model("Then I cannot.")
    assert case.state.outcome == "complete"


def test_a_tool_call_that_a_crash_cut_is_never_left_out(package: Package) -> None:
    """People say what became of it, and then that it is to be tried again, or abort: a model waits for its result."""
    body = flow_of(TOOLS).body()
    case = Talk(flow_from_body(body)).started().model("Let me page.", ("page_ana", {}))
    package.remove()
    case.flow = flow_from_body(body)
    case.claimed()
    assert [option["value"] for option in case.prompt.options] == ["done", "again", "abort"]
    assert REASON in case.refused(case.answer("done"), InvalidAnswer)
    case.when(case.answer("again"))
    assert [option["value"] for option in case.prompt.options] == ["again", "abort"]
    package.install()
    case.flow = flow_from_body(body)
    case.when(case.answer("again")).tool("tool[0]", {"said": "paged ana"}).model("Done.")
    assert case.state.outcome == "complete"


GRAPH = """
nodes:
  - {id: q, type: ask, with: {message: Now?}}
  - {id: call, type: page, with: {who: ana}}
  - {id: end, type: set, with: {said: "{{ status.call }}"}}
edges: [{from: q, to: call}, {from: call, to: end, gate: any}]
"""


@pytest.mark.parametrize("choice", ["skip", "migrate"])
async def test_a_node_of_a_graph_is_left_out_or_replaced(
    backing: Backing, tmp_path: Path, package: Package, choice: str
) -> None:
    """Its edges are resolved as those of any other node that was skipped, or that ran."""
    session_id = await waiting(backing, tmp_path, GRAPH)
    package.remove()
    async with engine(backing, tmp_path) as rig:
        await rig.reply(session_id, "yes")
        if choice == "skip":
            await press(rig, session_id, "skip")
        else:
            new = flow_of(GRAPH.replace("type: page", "type: set"))
            assert (await rig.engine.migrate(session_id, new, actor=ANA)).anew == ["call"]
        state = await rig.engine.parked(session_id)
        said = {"skip": "skipped", "migrate": "completed"}[choice]
        assert (state.status, state.nodes["end"].output) == ("complete", {"said": said})
