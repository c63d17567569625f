"""A runtime brings all that a session needs, and says what it lacks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine import Actor, Event, Json, Runtime, Session, State, load_flow, open_store
from engine.journal.state import Asked
from engine.language.errors import SeveralPrompts, StorageError
from engine.nodes.runtime.runner import Completed
from engine.run import frontend, remote_commands
from engine.run.frontend import Message, NotDelivered
from engine.run.runtime import NotOpen
from engine.run.session import RequestRefused
from engine.storage.leases import Served, lease
from engine.testing import ManualClock
from engine.testing.clock import START
from tests.support.engine import Workshop, running

ANA, BEN = Actor.local("ana"), Actor.local("ben")
GATE = """
flow: gated
nodes:
  - {id: gate, type: approval, with: {message: "Ship it?", approvers: ["local:ben"]}}
"""
QUESTION = "flow: q\nnodes: [{id: q, type: ask, with: {message: Q?}}]"
SAYS = "flow: says\nnodes: [{id: say, type: message, with: {text: Hello}}]"
AGENT = """
flow: thinks
nodes: [{id: think, type: agent, with: {prompt: "Why?"}}]
"""


class Recorder:
    """A frontend that notes what it is told, raises what it is told to raise, and returns what it is told to return."""

    def __init__(self, *raises: BaseException, **gives: Any) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.keys: list[str] = []
        self.seen: list[str] = []
        self.raises = list(raises)
        self.gives = gives

    async def ask(self, state: State, asked: Asked, key: str) -> dict[str, Json]:
        """Note a question."""
        self._note("ask", asked.message, key)
        return self.gives.get("ask", {"page": asked.prompt_id})

    async def close(self, state: State, asked: Asked) -> None:
        """Note the end of a question."""
        self._note("close", asked.status)

    async def deliver(self, message: Message, key: str) -> dict[str, Json]:
        """Note a message."""
        self._note("deliver", message.text, key)
        return self.gives.get("deliver", {"page": "wall"})

    def observe(self, state: State, events: Sequence[Event]) -> None:
        """Note events."""
        self.seen += [event.type for event in events]

    def _note(self, what: str, text: str, key: str = "") -> None:
        self.keys.append(key)
        if self.raises:
            raise self.raises.pop(0)
        self.calls.append((what, text))


def runtime(tmp_path: Path, **options: Any) -> Runtime:
    """A runtime over a database of the test."""
    return Runtime(f"sqlite:///{tmp_path}/flows.db", **options)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Runtime]:
    """It, open and without a frontend."""
    async with runtime(tmp_path) as made:
        yield made


async def begun(place: Runtime, text: str) -> Session:
    """A session of this flow, where it rests."""
    session = await place.start(load_flow(text), actor=ANA)
    async with asyncio.timeout(20):
        return await session.rest()


async def test_a_secret_that_is_not_set_is_named_before_the_start(
    place: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log, and the session asks first what it asks."""
    uses = "  - {id: use, type: shell, with: {run: [x], env: {A: '{{ secrets.NOBODY_SET }}'}}}\n"
    session = await begun(place, GATE + uses)
    assert [asked.message for asked in session.questions] == ["Ship it?"]
    assert "flow gated: secret NOBODY_SET is not set" in caplog.text


async def test_an_approval_counts_only_from_whom_it_names(place: Runtime) -> None:
    """The policy is the strict one unless another is given."""
    session = await begun(place, GATE)
    with pytest.raises(RequestRefused, match="ben") as refused:
        await session.answer("approve", actor=ANA)
    assert refused.value.code == "not_allowed"
    await session.answer("approve", actor=BEN)
    assert (await session.rest()).status == "complete"


@pytest.mark.parametrize(
    ("given", "said"), [({}, "manager is unknown"), ({"manager_of": {"local:ana": "local:ben"}.get}, "")]
)
async def test_a_manager_is_asked_where_one_is_known(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    """`approvers: [manager]` asks the manager of whoever started the flow, and fails in words where nobody has one."""
    async with runtime(tmp_path, **given) as place:
        session = await begun(place, GATE.replace("local:ben", "manager"))
        if said:
            assert said in str(session.state.nodes["gate"].error)
        else:
            assert [asked.approvers for asked in session.questions] == [("local:ben",)]


async def test_what_was_approved_is_pinned(tmp_path: Path) -> None:
    """A node that an approval covers reaches no other place than it names; another one may be sent elsewhere."""
    shop = Workshop()
    text = """
flow: gated
nodes:
  - {id: free, type: shell, with: {run: [wait]}}
  - {id: gate, type: approval, with: {message: "Go?", approvers: ["local:ben"], covers: apply}}
  - {id: apply, type: shell, with: {run: [wait]}}
"""
    async with runtime(tmp_path, runners={"shell": shop}) as place, asyncio.timeout(20):
        session = await place.start(load_flow(text), actor=ANA)
        free = await shop.running("free")
        free.done.set_result(Completed(shop.output()))
        await session.rest()
        await session.answer("approve", actor=BEN)
        apply = await shop.running("apply")
        assert (free.context.pinned, apply.context.pinned) == (False, True)
        apply.done.set_result(Completed(shop.output()))
        await session.rest()


async def test_a_message_without_a_frontend_fails_with_a_sentence(place: Runtime) -> None:
    """It does not run forever, and its error says what to do."""
    session = await begun(place, SAYS)
    assert session.status == "failed"
    assert "give the Runtime a frontend" in str(session.error)


async def test_an_agent_without_a_model_asks_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not hang, and the question names the variable for the key."""
    for name in ("ANTHROPIC_API_KEY", "SAYSO_ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    async with runtime(tmp_path) as place:
        session = await begun(place, AGENT)
    (prompt,) = session.state.prompts.values()
    assert "ANTHROPIC_API_KEY" in prompt.message


async def test_an_engine_without_a_runner_says_so(tmp_path: Path) -> None:
    """An engine that was given no runner for a type fails the node with what to do."""
    async with running(open_store("memory:"), tmp_path, runners={"http": Workshop()}) as rig:
        state = await rig.settled("flow: none\nnodes: [{id: go, type: shell, with: {run: [x]}}]")
    assert "give the engine one" in str(state.error)


async def test_a_deadline_begins_without_a_frontend(tmp_path: Path) -> None:
    """A question that only waits to be read has its time, and has ended after it."""
    clock = ManualClock()
    text = "flow: timed\nnodes: [{id: gate, type: ask, with: {message: Well?, timeout: 1h}}]"
    async with runtime(tmp_path, now=clock) as place:
        session = await begun(place, text)
        assert session.questions[0].deadline is not None
        clock.advance(3601)
        place.wake()
        async with asyncio.timeout(20):
            await session.ended()
    assert session.status == "failed"


async def test_a_question_without_a_frontend_waits_at_once(place: Runtime) -> None:
    """Nobody is to be shown it, so it is asked and waits in one step, and no intent is left over for it."""
    session = await begun(place, GATE)
    (asked,) = session.questions
    assert asked.shown == {"runtime": True}
    await session.answer("approve", actor=BEN)
    assert (await session.ended()).status == "complete"
    for kind in ("ask", "close"):
        key = f"{kind}:{asked.prompt_id}~{asked.generation}"
        assert await place.engine.writer.call(place.engine.store.outbox.row, key) is None


async def test_a_question_is_left_to_the_server_of_its_database(tmp_path: Path) -> None:
    """While a bot serves the database a runtime without a frontend leaves its questions to be shown."""
    async with runtime(tmp_path) as place:
        with lease(tmp_path / "flows.db", "sayso start", START):
            session = await place.start(load_flow(GATE), actor=ANA)
            state = await place.engine.parked(session.id)
            assert [asked.shown for asked in state.prompts.values()] == [None]
        place.wake()
        assert (await session.rest()).questions[0].shown == {"runtime": True}


async def test_a_frontend_asks_closes_and_delivers(tmp_path: Path) -> None:
    """What is committed reaches it in order, and what it returns is recorded."""
    shown = Recorder()
    text = """
    flow: both
    nodes:
      - {id: gate, type: ask, with: {message: "Well?"}}
      - {id: say, type: message, with: {text: "So: {{ nodes.gate.text }}"}}
    """
    async with runtime(tmp_path, frontend=shown) as place:
        session = await begun(place, text)
        assert session.questions[0].shown == {"page": session.questions[0].prompt_id}
        await session.answer("fine", actor=ANA)
        await session.rest()
    assert shown.calls == [("ask", "Well?"), ("close", "answered"), ("deliver", "So: fine")]
    assert session.outputs["say"] == {"page": "wall"}
    assert "session:end" in shown.seen


@pytest.mark.parametrize("raised", [OSError("the page is away"), asyncio.CancelledError()], ids=repr)
async def test_what_a_frontend_raises_is_tried_again_with_the_same_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException
) -> None:
    """At least once: the key knows a second time. A cancellation within it ends nothing else."""
    monkeypatch.setattr("engine.run.frontend.BACKOFF_SECONDS", (0.0, 0.0))
    shown = Recorder(raised)
    async with runtime(tmp_path, frontend=shown) as place:
        assert (await begun(place, SAYS)).status == "complete"
    assert len(shown.keys) == 2
    assert shown.keys[0] == shown.keys[1]


async def test_a_message_that_is_refused_fails_at_once(tmp_path: Path) -> None:
    """`NotDelivered` is not tried again."""
    shown = Recorder(NotDelivered("The wall is full."))
    async with runtime(tmp_path, frontend=shown) as place:
        session = await begun(place, SAYS)
    assert len(shown.keys) == 1
    assert "The wall is full." in str(session.error)


async def test_a_slow_frontend_holds_up_one_session_only(tmp_path: Path) -> None:
    """What is being shown for one session keeps no other waiting."""

    class Slow(Recorder):
        async def deliver(self, message: Message, key: str) -> dict[str, Json]:
            if message.text == "Hello":
                await asyncio.Event().wait()
            return await super().deliver(message, key)

    async with runtime(tmp_path, frontend=Slow()) as place:
        await place.start(load_flow(SAYS), actor=ANA)
        assert (await begun(place, SAYS.replace("Hello", "Bye"))).status == "complete"


async def test_several_questions_are_named(place: Runtime) -> None:
    """An answer that could be for several questions is for none of them."""
    text = """
    flow: two
    nodes:
      - id: both
        type: parallel
        branches:
          one: [{id: one, type: ask, with: {message: One?}}]
          two: [{id: two, type: ask, with: {message: Two?}}]
    """
    session = await begun(place, text)
    with pytest.raises(SeveralPrompts, match=session.questions[1].prompt_id):
        await session.answer("x", actor=ANA)
    await session.answer("x", actor=ANA, question=session.questions[1].prompt_id)
    assert [asked.message for asked in session.questions] == ["One?"]


async def test_what_is_said_takes_one_commit(place: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer, and a refusal, needs no row in the inbox where nothing comes first."""
    session = await begun(place, GATE)
    monkeypatch.setattr("engine.storage.group_commit.Writer.ingest", None)
    with pytest.raises(RequestRefused):
        await session.answer("approve", actor=ANA)
    await session.answer("approve", actor=BEN)
    assert (await session.rest()).status == "complete"


async def test_what_is_said_elsewhere_reaches_the_owner(tmp_path: Path) -> None:
    """A session that another runtime works for is answered through the inbox, by that one."""
    text = """
    flow: two
    nodes:
      - id: both
        type: parallel
        branches:
          one: [{id: one, type: ask, with: {message: One?}}]
          two: [{id: two, type: shell, with: {run: [sleep, "60"]}}]
    """
    async with runtime(tmp_path) as owner, runtime(tmp_path) as other:
        session = await owner.start(load_flow(text), actor=ANA)
        async with asyncio.timeout(20):
            there = await other.session(session.id)
            while not there.questions:
                await there.refresh()
            receipt = await there.answer("x", actor=ANA)
            assert (await owner.engine.writer.call(owner.engine.store.inbox.row, receipt.key)) is not None
            assert not there.questions
            await there.abort(actor=ANA)
            assert (await session.ended()).status == "aborted"


async def test_what_is_said_while_others_wait_comes_after_them(place: Runtime) -> None:
    """A request is not carried out at once where one that is in the inbox has not been carried out yet."""
    session = await begun(place, GATE)
    wanted = remote_commands.own_command("k", "abort", actor=ANA)
    lanes = place._dispatcher._lanes
    lanes[session.id] = []
    assert await place._dispatcher.at_once(session.id, wanted) is None
    assert (await session.refresh()).status == "paused"
    del lanes[session.id]
    after = await place._dispatcher.at_once(session.id, wanted)
    assert after is not None
    assert after.status == "aborted"


async def test_what_was_read_is_loaded_once_and_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that was read is claimed as it was read, unless another runtime has changed it since."""
    text = """
    flow: two
    nodes: [{id: one, type: ask, with: {message: One?}}, {id: two, type: ask, with: {message: Two?}}]
    """
    async with runtime(tmp_path) as one, runtime(tmp_path) as other:
        session = await begun(one, text)
        loaded = []
        load = other.engine.store.sessions.load
        monkeypatch.setattr(
            other.engine.store.sessions, "load", lambda name: loaded.append(name) or load(name)
        )
        there = await other.session(session.id)
        assert not other.engine.sessions.known(session.id)
        await there.answer("a", actor=ANA)
        assert loaded == [session.id]
        assert other.engine.sessions.known(session.id)

        await session.refresh()
        await (await there.rest()).answer("b", actor=ANA)
        assert (await there.rest()).status == "complete"
        with pytest.raises(RequestRefused, match="complete"):
            await session.abort(actor=ANA)


async def test_what_was_left_is_shown_by_the_next_runtime(tmp_path: Path) -> None:
    """A question whose process ended before its frontend took it is asked by the next one."""
    first, second = Recorder(*[OSError("away")] * 50), Recorder()
    async with runtime(tmp_path, frontend=first) as place:
        session = await place.start(load_flow(QUESTION), actor=ANA)
        await place.engine.parked(session.id)
    async with runtime(tmp_path, frontend=second, now=ManualClock("2099-01-01T00:00:00.000Z")) as place:
        async with asyncio.timeout(20):
            await (await place.session(session.id)).rest()
    assert second.calls == [("ask", "Q?")]


async def test_a_runtime_works_while_it_is_open(tmp_path: Path) -> None:
    """Outside of its `async with` it says what is wrong."""
    with pytest.raises(NotOpen, match="async with"):
        await runtime(tmp_path).start(load_flow(SAYS), actor=ANA)


@pytest.mark.parametrize("given", ["here", None, {"page": object()}], ids=["text", "nothing", "no-json"])
async def test_a_place_that_is_no_json_object_counts_as_shown(tmp_path: Path, given: Any) -> None:
    """The question is shown once, and its session can be answered and read."""
    shown = Recorder(ask=given)
    async with runtime(tmp_path, frontend=shown) as place:
        session = await begun(place, QUESTION)
        assert session.questions[0].shown == {}
        await session.answer("yes", actor=ANA)
        assert (await session.rest()).status == "complete"
    assert [text for what, text in shown.calls if what == "ask"] == ["Q?"]


async def test_an_output_of_a_frontend_that_is_no_json_fails_the_message_once(tmp_path: Path) -> None:
    """What was said is not said again because of what `deliver` returned."""
    shown = Recorder(deliver={"page": object()})
    async with runtime(tmp_path, frontend=shown) as place:
        session = await begun(place, SAYS)
    assert shown.calls == [("deliver", "Hello")]
    assert "must return JSON" in str(session.error)


async def test_a_frontend_that_is_not_async_is_called_once(tmp_path: Path) -> None:
    """A plain function has shown the question by the time that it returns."""

    class Plain(Recorder):
        def ask(self, state: State, asked: Asked, key: str) -> dict[str, Json]:  # type: ignore[override]
            self._note("ask", asked.message, key)
            return {"page": "plain"}

    shown = Plain()
    async with runtime(tmp_path, frontend=shown) as place:
        session = await begun(place, QUESTION)
    assert session.questions[0].shown == {"page": "plain"}
    assert shown.calls == [("ask", "Q?")]


async def test_commits_without_events_are_not_observed(tmp_path: Path) -> None:
    """`observe` is told of events, and of nothing else."""

    class Counts(Recorder):
        def observe(self, state: State, events: Sequence[Event]) -> None:
            self.calls.append(("observe", len(events)))

    shown = Counts()
    async with runtime(tmp_path, frontend=shown) as place:
        session = await begun(place, GATE)
        with pytest.raises(RequestRefused):
            await session.answer("approve", actor=ANA)
    counts = [count for what, count in shown.calls if what == "observe"]
    assert counts
    assert all(counts)


async def test_two_runtimes_show_everything_once(tmp_path: Path) -> None:
    """The second frontend of a database waits for the end of the first."""
    first, second = Recorder(), Recorder()
    async with runtime(tmp_path, frontend=second) as later:
        async with runtime(tmp_path, frontend=first) as place:
            assert (await begun(place, SAYS.replace("Hello", "First"))).status == "complete"
        assert (await begun(later, SAYS)).status == "complete"
    assert sorted(text for _, text in first.calls + second.calls) == ["First", "Hello"]
    assert first.calls == []


async def test_the_second_frontend_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    """The lock is free when its runtime is closed."""
    first, second = Recorder(), Recorder()
    one, two = runtime(tmp_path, frontend=first), runtime(tmp_path, frontend=second)
    async with one as place:
        await begun(place, SAYS)
        await two.__aenter__()
    try:
        assert (await begun(two, SAYS.replace("Hello", "Bye"))).status == "complete"
    finally:
        await two.__aexit__(None, None, None)
    assert (first.calls, second.calls) == ([("deliver", "Hello")], [("deliver", "Bye")])


async def test_a_server_of_the_database_keeps_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a bot posts is taken by no runtime beside it: that one waits for the bot's end."""
    shown, refused = Recorder(), asyncio.Event()
    monkeypatch.setattr(frontend.log, "warning", lambda *words: refused.set())
    with lease(tmp_path / "flows.db", "sayso start", START):
        async with runtime(tmp_path, frontend=shown) as place:
            session = await place.start(load_flow(SAYS), actor=ANA)
            await refused.wait()
            assert shown.calls == []
    async with runtime(tmp_path, frontend=shown) as place:
        await (await place.session(session.id)).rest()
    assert shown.calls == [("deliver", "Hello")]


async def test_no_server_starts_beside_a_frontend(tmp_path: Path) -> None:
    """Whoever starts a bot on the database of a runtime that shows its sessions is told which process that is."""
    async with runtime(tmp_path, frontend=Recorder()) as place:
        assert (await begun(place, SAYS)).status == "complete"
        with (
            pytest.raises(Served, match="`runtime`, process"),
            lease(tmp_path / "flows.db", "sayso start", START),
        ):
            pass


async def test_two_runtimes_over_open_stores_show_everything_once(tmp_path: Path) -> None:
    """A store that was opened by its program has the same lease as its URL."""
    first, second = Recorder(), Recorder()
    with (
        closing(open_store(f"sqlite:///{tmp_path}/flows.db")) as one,
        closing(open_store(f"sqlite:///{tmp_path}/flows.db")) as two,
    ):
        async with Runtime(one, frontend=first) as place, Runtime(two, frontend=second) as other:
            assert (await begun(place, SAYS)).status == "complete"
            assert (await begun(other, SAYS)).status == "complete"
    assert sorted(first.calls + second.calls) == [("deliver", "Hello")] * 2
    assert [] in (first.calls, second.calls)


async def test_a_runtime_without_a_frontend_leaves_messages_to_the_one_with_it(tmp_path: Path) -> None:
    """A process that only answers fails no message of the process that shows them."""
    shown = Recorder()
    async with runtime(tmp_path, frontend=shown) as place:
        await begun(place, SAYS)
        async with runtime(tmp_path) as other:
            assert (await begun(other, SAYS)).status == "complete"
    assert shown.calls == [("deliver", "Hello")] * 2


async def test_a_runtime_is_not_opened_twice(tmp_path: Path) -> None:
    """The second `async with` says so, and the first one continues; later it may be opened again."""
    place = runtime(tmp_path)
    async with place:
        with pytest.raises(NotOpen, match="already open"):
            await place.__aenter__()
        assert (await begun(place, QUESTION)).status == "paused"
    async with place:
        assert (await begun(place, QUESTION)).status == "paused"


async def test_a_runtime_that_could_not_open_may_be_opened_again(tmp_path: Path) -> None:
    """A failure in between leaves nothing open."""
    place = Runtime("nonsense")
    for _ in range(2):
        with pytest.raises(StorageError, match="not a database URL"):
            await place.__aenter__()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"store": Path("x.db")}, "A store is a URL"),
        ({"frontend": object()}, "has no `ask`"),
        ({"frontend": Recorder}, "give an instance"),
    ],
)
def test_a_wrong_part_is_named_at_once(options: Any, sentence: str) -> None:
    """Not when the first question is to be shown."""
    with pytest.raises(TypeError, match=sentence):
        Runtime(**options)


async def test_a_name_is_no_actor_and_a_text_no_flow(place: Runtime) -> None:
    """The sentence says what is one."""
    with pytest.raises(TypeError, match="load_flow"):
        await place.start(SAYS, actor=ANA)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Actor\.local"):
        await place.start(load_flow(SAYS), actor="ana")  # type: ignore[arg-type]
    session = await begun(place, QUESTION)
    with pytest.raises(TypeError, match=r"Actor\.local"):
        await session.answer("yes", actor="ana")  # type: ignore[arg-type]
