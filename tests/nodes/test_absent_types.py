"""A session whose node type was uninstalled is set aside, and continues by `release` once the type is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from msgspec.structs import replace

from bot.compose.environment import lacking
from engine.decide.commands import Abort, Answer, Hold
from engine.flow import Flow
from engine.flow.load import flow_from_body, load_flow
from engine.journal.fold import derive_state
from engine.language.errors import FlowError, SessionError, SessionQuarantined
from engine.nodes.runtime.table import runners
from engine.nodes.types import registry
from engine.run.sessions import Sessions
from tests.nodes.gonekit import MODULE, Package
from tests.support.engine import ANA, Backing, Clock, EngineRig, flow_of, running, served, until

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
    """The packages of all texts are in the pin, and what is gone is known of the whole."""
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
        (MODULE.replace("who: str", "whom: str"), "of the package pager no longer takes this: "),
    ],
)
def test_a_broken_or_changed_package_counts_as_gone(package: Package, release: str, reason: str) -> None:
    """A release that cannot be imported, or that takes other fields, leaves the session readable and says why."""
    body = flow_of(ASKS).body()
    package.write(release)
    package.install()
    assert reason in flow_from_body(body).absent["page"]
    registry.forget()


# --- set aside, and released -------------------------------------------------------------------------------


async def set_aside(rig: EngineRig, session_id: str) -> None:
    """Taken up, it is quarantined with the reason."""
    with pytest.raises(SessionQuarantined, match="`page` of the package pager is not installed here"):
        await rig.engine.apply(session_id, None)
    assert (await rig.engine.head(session_id)).quarantined == REASON


async def release(rig: EngineRig, session_id: str) -> None:
    """As `sayso sessions release` does."""
    await rig.engine.writer.call(rig.engine.store.sessions.release, session_id)


async def test_it_is_set_aside_and_goes_on_once_its_type_is_back_and_it_is_released(
    backing: Backing, tmp_path: Path, orphan: str, package: Package
) -> None:
    """Its journal stays as it was; released without the type it is set aside again, and with it the node runs once."""
    async with engine(backing, tmp_path) as rig:
        before = await rig.engine.journal(orphan)
        for _ in range(2):
            await set_aside(rig, orphan)
            await release(rig, orphan)
        await set_aside(rig, orphan)
        assert await rig.engine.journal(orphan) == before
    package.install()
    async with engine(backing, tmp_path) as rig:
        with pytest.raises(SessionQuarantined):
            await rig.engine.apply(orphan, None)
        await release(rig, orphan)
        await rig.reply(orphan, "ben")
        state = await rig.engine.parked(orphan)
        assert (state.status, state.nodes["end"].output) == ("complete", {"said": "paged ben"})
        assert package.ran() == ["call ben"]
        assert derive_state(await rig.engine.journal(orphan)) == state


async def test_no_word_of_people_begins_anything_of_it(
    backing: Backing, tmp_path: Path, orphan: str, package: Package
) -> None:
    """An answer, a pause and an abort are refused alike, and none of them is recorded."""
    async with engine(backing, tmp_path) as rig:
        before = await rig.engine.journal(orphan)
        prompt_id = next(iter((await rig.engine.state(orphan)).open_prompts))
        for command in (Answer(prompt_id, ANA, "k1", text="ben"), Hold(ANA, "k2"), Abort(ANA)):
            with pytest.raises(SessionQuarantined):
                await rig.engine.apply(orphan, command)
        assert await rig.engine.journal(orphan) == before
    assert package.ran() == []


async def test_a_node_that_was_cut_off_is_asked_about_after_its_release(
    backing: Backing, tmp_path: Path, package: Package
) -> None:
    """A crash took the process while it ran: nothing is decided about it while its type is gone."""
    package.write(
        MODULE.replace("return {", "await __import__('asyncio').Event().wait()\n            return {")
    )
    package.install()
    async with engine(backing, tmp_path) as rig:
        session_id = await rig.start("nodes: [{id: call, type: page, with: {who: ben}}]")
        await until(lambda: package.ran() == ["call ben"])
    package.remove()
    async with engine(backing, tmp_path) as rig:
        await set_aside(rig, session_id)
    package.write(MODULE)
    package.install()
    async with engine(backing, tmp_path) as rig:
        await release(rig, session_id)
        await rig.engine.apply(session_id, None)
        prompt = await rig.open_prompt(session_id)
        assert [option["value"] for option in prompt.options] == ["done", "again", "abort"]


async def test_none_is_begun_again_without_its_type(
    backing: Backing, tmp_path: Path, package: Package
) -> None:
    """A fork, and the one next try that a failed session has, would fail at once: they are refused, and work once the type is
    there."""
    package.write(MODULE.replace("return {", "raise ZeroDivisionError\n            return {"))
    package.install()
    failed = await waiting(backing, tmp_path, "nodes: [{id: call, type: page, with: {who: ben}}]")
    package.remove()
    async with engine(backing, tmp_path) as rig:
        before = rig.store.sessions.heads()
        with pytest.raises(SessionError, match="`page` of the package pager is not installed here: session"):
            await rig.engine.retry(failed, actor=ANA)
        with pytest.raises(SessionError, match="starts again once this is fixed"):
            await rig.engine.fork(failed, 1, actor=ANA)
        assert rig.store.sessions.heads() == before
    package.write(MODULE)
    package.install()
    async with engine(backing, tmp_path) as rig:
        again = await rig.engine.retry(failed, actor=ANA)
        assert (await rig.engine.parked(again)).status == "complete"


async def test_timers_of_many_that_are_set_aside_hold_back_nobody(
    backing: Backing, tmp_path: Path, package: Package
) -> None:
    """More than one look takes are due: a session that lacks nothing is running in time."""
    now = Clock()
    lacks = "nodes: [{id: w, type: wait, with: {for: 1m}}, {id: call, type: page, with: {who: ben}}]"
    async with running(backing.open(), tmp_path / "home", runners=runners(), now=now) as rig:
        orphans = [(await rig.settled(lacks)).session_id for _ in range(101)]
        ours = (await rig.settled("nodes: [{id: w, type: wait, with: {for: 2m}}]")).session_id
    package.remove()
    now.advance(3600)
    async with running(backing.open(), tmp_path / "home", runners=runners(), now=now) as rig:
        for session_id in orphans:
            await set_aside(rig, session_id)
        async with served(rig.engine):
            await rig.committed.until("session:end", ours)
    assert package.ran() == []


async def test_other_sessions_and_those_that_ended_are_not_disturbed(
    backing: Backing, tmp_path: Path, package: Package
) -> None:
    """A session of another flow runs beside it, and what has ended is read as ever."""
    async with engine(backing, tmp_path) as rig:
        ended = (await rig.settled("nodes: [{id: call, type: page, with: {who: ana}}]")).session_id
    package.remove()
    async with engine(backing, tmp_path) as rig:
        assert (await rig.settled("nodes: [{id: a, type: set, with: {x: 1}}]")).status == "complete"
        assert (await rig.engine.state(ended)).nodes["call"].output == {"said": "paged ana"}
        assert (await rig.engine.head(ended)).quarantined is None
        assert lacking(rig.store) == {}


async def test_open_sessions_are_listed_by_what_they_lack(
    backing: Backing, tmp_path: Path, orphan: str
) -> None:
    """Before they are set aside, and not after."""
    async with engine(backing, tmp_path) as rig:
        found = lacking(rig.store)
        assert {why: [head.session_id for head in heads] for why, heads in found.items()} == {
            REASON: [orphan]
        }
        await set_aside(rig, orphan)
        assert lacking(rig.store) == {}


async def test_a_claim_that_believes_every_flow_is_noticed(
    backing: Backing, tmp_path: Path, orphan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seeded fault: nothing is set aside for want of a type."""
    plain = Sessions.flow

    async def whole(self: Sessions, digest: str) -> Flow:
        return replace(await plain(self, digest), absent={})

    monkeypatch.setattr(Sessions, "flow", whole)
    async with engine(backing, tmp_path) as rig:
        with pytest.raises(pytest.fail.Exception):
            await set_aside(rig, orphan)
