"""Every public name as a user writes it: mypy checks the types, and the test of the surface runs `main`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_type

from engine import (
    Actor,
    Answer,
    Asked,
    Engine,
    Event,
    Flow,
    FlowError,
    Frontend,
    Hub,
    Json,
    PauseError,
    Policy,
    Question,
    Runtime,
    SaysoError,
    Session,
    State,
    Status,
    Store,
    decode_event,
    derive_state,
    load_flow,
    load_flows,
    node,
    open_sqlite,
    open_store,
    runners,
)
from engine.nodes.api import Context
from engine.run.frontend import Message
from engine.testing import CrashingStore, ManualClock

ANA: Actor = Actor.local("ana")
FLOW = """
flow: typed
nodes:
  - {id: gate, type: approval, with: {message: "Ship it?", approvers: ["local:ana"]}}
  - {id: double, type: doubled, with: {number: 21}}
  - {id: say, type: message, with: {text: "{{ nodes.double }}"}}
"""


@node("doubled", on_crash="again")
def doubled(number: int, ctx: Context) -> int:
    """Twice a number."""
    return number * 2


class Page:
    """A frontend."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def ask(self, state: State, asked: Asked, key: str) -> dict[str, Json]:
        """Show a question."""
        question: Question = asked
        self.lines.append(question.message)
        return {"page": key}

    async def close(self, state: State, asked: Asked) -> None:
        """Close it."""

    async def deliver(self, message: Message, key: str) -> dict[str, Json]:
        """Show a message."""
        self.lines.append(message.text)
        return {}

    def observe(self, state: State, events: Sequence[Event]) -> None:
        """Look at events."""
        self.lines += [event.type for event in events if event.type == "session:end"]


async def main(url: str) -> list[str]:
    """Run the flow as an embedding program does."""
    page, flow = Page(), load_flow(FLOW)
    frontend: Frontend = page
    async with Runtime(url, frontend=frontend) as runtime:
        session = await runtime.start(flow, actor=ANA)
        assert_type(session, Session)
        await session.rest()
        assert_type(session.status, Status)
        assert_type(session.questions, list[Asked])
        hub: Hub = runtime.hub(session.id, ANA)
        await session.answer("approve", actor=ANA)
        await session.ended()
        events: Sequence[Event] = await hub.get_event_log()
        assert_type(derive_state(events), State)
        assert [decode_event(event.to_bytes()) for event in events] == events
        assert_type(runtime.engine, Engine)
        outputs: Mapping[str, Json] = session.outputs
        page.lines.append(str(outputs["double"]))
    return page.lines


def parts(directory: str) -> None:
    """The parts by themselves."""
    store: Store = open_sqlite(f"{directory}/a.db")
    other = open_store("memory:")
    flows, errors = load_flows(directory)
    assert_type(flows, dict[str, Flow])
    assert_type(errors, dict[str, FlowError])
    answer: Answer = Answer("prompt-1", ANA, "key-1", text="yes")
    policy: Policy = everybody
    engine = Engine(other, policy=policy, runners=runners(), home=open_folder(directory), now=ManualClock())
    assert_type(engine.store, Store)
    crashing: Store = CrashingStore(store).store
    problems: tuple[SaysoError, PauseError] = (SaysoError(""), PauseError(state={}))
    assert all([answer, crashing, problems])


def everybody(actor: Actor, action: str, state: State, prompt: Any) -> str | None:
    """A policy that allows everything."""
    return None


def open_folder(directory: str) -> Any:
    """A folder as a path."""
    from pathlib import Path

    return Path(directory)
