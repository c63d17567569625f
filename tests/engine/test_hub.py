"""The hub: the face of one session, before, while and after it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.flow.load import load_flow
from engine.journal.state import Asked, State
from engine.language.actors import Actor
from engine.language.errors import (
    EmptyMessage,
    NotAllowed,
    PauseError,
    SessionEnded,
    SessionError,
    UnknownSession,
)
from engine.nodes.runtime.runner import Completed, Interrupted, NodeContext, Outcome
from engine.run.engine import Engine
from engine.run.hub import Hub
from engine.storage.open import MemoryStore
from tests.support.engine import Committed, served

ME = Actor.local("ana")

FLOW = """
flow: hub
nodes:
  - {id: work, type: shell, with: {run: [x]}, on_crash: again}
  - {id: question, type: ask, with: {message: "And now?"}}
  - {id: more, type: set, with: {said: "{{ nodes.question.text }}", heard: "{{ messages | length }}"}}
"""


class World:
    """A runner that waits until it is let go, or told to leave."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.runs = 0

    async def shell(self, config: Any, ctx: NodeContext) -> Outcome:
        self.runs += 1
        self.begun.set()
        waits = [asyncio.create_task(self.go.wait()), asyncio.create_task(ctx.aborted.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if self.go.is_set():
            return Completed({"stdout": "", "stderr": "", "exit_code": 0, "seconds": 0})
        return Interrupted("cut")


def everybody(actor: Actor, action: str, state: State, prompt: Asked | None) -> str | None:
    """A policy that refuses only Cleo."""
    return "Cleo may not." if actor.name == "cleo" else None


@dataclass
class Stage:
    """A session whose first node is running, and all that its hub tells."""

    engine: Engine
    world: World
    hub: Hub
    heard: list[dict[str, Any]]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    world, heard = World(), []
    engine = Engine(MemoryStore(), policy=everybody, runners={"shell": world.shell}, home=tmp_path)
    await engine.open()
    hub = Hub(engine, "session-0badcafe", ME)
    hub.subscribe("*", heard.append)
    assert hub.status == "idle"
    await engine.start(load_flow(FLOW, "hub.yml"), {}, actor=ME, session_id="session-0badcafe")
    await world.begun.wait()
    yield Stage(engine, world, hub, heard)
    world.go.set()
    await engine.close()


async def test_pausing_tells_the_state_and_resuming_delivers_the_message_after_everything_before(
    stage: Stage,
) -> None:
    """A pause in the middle of a node cuts it, tells `flow:paused` with the state, and a resume continues from there."""
    hub, engine, world, heard = stage.hub, stage.engine, stage.world, stage.heard
    signal = hub.get_abort_signal()
    await hub.pause("lunch")
    assert signal.is_set()
    assert (hub.status, hub.phase) == ("paused", "held")
    told = heard[-1]
    assert (told["type"], told["reason"], told["sessionId"]) == ("flow:paused", "lunch", hub.session_id)
    assert told["state"]["sessionId"] == hub.session_id
    assert await hub.get_paused_session(hub.session_id) is not None
    world.go.set()
    await hub.resume(hub.session_id, "go on")
    assert not hub.get_abort_signal().is_set(), "a resume makes a fresh context"
    state = await engine.parked(hub.session_id)
    assert (state.phase, world.runs) == ("waiting", 2)
    types = [event.type for event in await hub.get_event_log()]
    assert types.index("session:message") > types.index("flow:paused")
    assert await hub.derive_state() == state
    await hub.resume(hub.session_id, "the end")
    final = await engine.parked(hub.session_id)
    assert final.nodes["more"].output == {"said": "the end", "heard": 1}


async def test_pausing_what_is_paused_changes_nothing_and_aborting_it_ends_it(stage: Stage) -> None:
    """A second pause writes nothing; an abort of a paused session is final; everything after it is refused."""
    hub = stage.hub
    await hub.abort(resumable=True)
    before = len(await hub.get_event_log())
    await hub.pause("again")
    assert len(await hub.get_event_log()) == before
    await hub.abort("enough")
    assert hub.status == "aborted"
    for ask in (hub.pause(), hub.abort(), hub.resume(hub.session_id, "hello")):
        with pytest.raises(SessionEnded):
            await ask


async def test_messages_sent_to_a_running_session_are_kept_in_their_order(stage: Stage) -> None:
    """They are journaled while a node runs, answer no question, and are `messages` for what comes after them."""
    hub, engine, world = stage.hub, stage.engine, stage.world
    await hub.send(hub.session_id, "first")
    await hub.send(hub.session_id, "second")
    world.go.set()
    state = await engine.parked(hub.session_id)
    assert [message["text"] for message in state.messages] == ["first", "second"]
    await hub.send(hub.session_id, "while it waits for a text")
    assert len((await hub.refresh()).open_prompts) == 1
    await hub.resume(hub.session_id, "the answer")
    final = await engine.parked(hub.session_id)
    assert final.nodes["more"].output == {"said": "the answer", "heard": 3}
    with pytest.raises(SessionEnded):
        await hub.send(hub.session_id, "too late")


async def test_what_is_sent_is_checked(stage: Stage) -> None:
    """An empty message, one from somebody who may not steer, and one to nobody are refused; nothing is kept."""
    hub, engine = stage.hub, stage.engine
    with pytest.raises(EmptyMessage):
        await hub.send(hub.session_id, " ")
    with pytest.raises(NotAllowed):
        await Hub(engine, hub.session_id, Actor.local("cleo")).send(hub.session_id, "hello")
    with pytest.raises(UnknownSession):
        await hub.send("session-none", "hello")
    assert (await hub.refresh()).messages == ()


async def test_what_is_sent_from_another_process_arrives_in_order(stage: Stage, tmp_path: Path) -> None:
    """Where another engine works for the session, the messages are in the inbox, and its service takes them."""
    hub, engine = stage.hub, stage.engine
    other = Engine(engine.store.another(), policy=everybody, runners={}, home=tmp_path)  # type: ignore[attr-defined]  # the memory store
    await other.open()
    for text in ("one", "two"):
        await other.send(hub.session_id, text, actor=ME)
    assert (await hub.refresh()).messages == ()
    kept = Committed(engine)
    async with served(engine):
        await kept.until("session:message", times=2)
    assert [message["text"] for message in (await hub.refresh()).messages] == ["one", "two"]
    await other.close()


async def test_a_checkpoint_of_the_hub_raises_once_the_session_is_to_stop(stage: Stage) -> None:
    """It does nothing while the session runs; paused by whomever, it raises with the state; after a resume it is quiet."""
    hub, engine, world = stage.hub, stage.engine, stage.world
    await hub.refresh()
    hub.checkpoint()
    await engine.pause(hub.session_id, actor=ME)
    with pytest.raises(PauseError) as left:
        hub.checkpoint()
    assert left.value.state == await hub.get_paused_session(hub.session_id)
    assert left.value.state["sessionId"] == hub.session_id
    assert left.value.saved is None
    world.go.set()
    await hub.resume(hub.session_id, "go on")
    hub.checkpoint()
    await engine.abort(hub.session_id, actor=ME)
    with pytest.raises(PauseError):
        hub.checkpoint()


async def test_a_journal_is_never_cleared(stage: Stage) -> None:
    """Clearing is allowed before the start only."""
    hub, engine = stage.hub, stage.engine
    await Hub(engine, "session-00000000", ME).clear_event_log()
    with pytest.raises(SessionError, match="append-only"):
        await hub.clear_event_log()
