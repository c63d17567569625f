"""What was sent to a model is never another thing later: over upgrades, restarts, kills, forks, and whatever becomes of files,
docstrings and servers. The local server binds thinking to it, as Claude does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from engine.decide.agents import conversation, model_request
from engine.decide.agents.listings import ListingRows, approved
from engine.decide.agents.spend_projection import SpendRows
from engine.decide.commands import Answer
from engine.flow.builtin_tools import BUILTIN, Builtin
from engine.flow.load import load_flow
from engine.flow.node import ToolKind, plan_of
from engine.journal.events import AgentMessage, AgentOpened
from engine.journal.state import Asked, State
from engine.language.codec import Json
from engine.language.errors import Fenced
from engine.messages.model_limits import AgentFacts
from engine.messages.turns import Tool
from engine.models import function_tools, turn_runner
from engine.models.claude import ClaudeProvider
from engine.models.turn_runner import TurnRunner
from engine.nodes.runtime.runner import Completed, Failed, NodeContext, Outcome
from engine.nodes.runtime.table import with_runner
from engine.run import stored
from engine.run.engine import Engine
from engine.run.memory import descriptions
from engine.storage.sqlite import open_sqlite
from engine.storage.store import Store
from engine.testing.crashes import CrashingStore, nth
from prompt_state.question_row import projection
from tests.nodes.pictures import png
from tests.support.claude_binding import grows
from tests.support.claude_rules import summary
from tests.support.claude_server import ClaudeServer, Failure, Recorded, Reply, call, claude_server
from tests.support.engine import ANA, SESSION, Clock, everybody, shell_runners
from tests.support.proving import PROVE

FLOW = """
flow: incident
nodes:
  - id: make
    type: shell
    on_crash: again
    with: {script: "printf 'line one' > notes.txt; cp ../../first.png chart.png"}
  - id: diagnose
    type: agent
    with:
      prompt: Why is it down?
      files: [notes.txt, chart.png]
      tools: [ask_human, read_file, {mcp: {server: grafana, tools: [query]}}, {python: {call: "json:dumps", name: dump}}]
"""


def thought(*blocks: dict[str, Any], number: int) -> Reply:
    """An answer that the model has thought about."""
    return Reply([{"type": "thinking", "thinking": f"So {number}.", "signature": ""}, *blocks])


def answer(place: int) -> Reply:
    """What the model says at this place: it reads, asks a person, asks a server, and ends."""
    tools = [
        call("read_file", {"path": "chart.png"}, "toolu_read"),
        call("ask_human", {"question": "Which one?"}, "toolu_ask"),
        call("grafana__query", {"q": "up"}, "toolu_query"),
    ]
    last = {"type": "text", "text": "The disk is full."}
    return thought(tools[place] if place < len(tools) else last, number=place)


def place_of(body: Any) -> int:
    """How many answers a conversation has."""
    return sum(message["role"] == "assistant" for message in body["messages"])


class World:
    """A folder, a server of models, a server of tools, and any number of lives of the engine."""

    flow = FLOW
    snapshots: Path | None = None

    def __init__(self, folder: Path, server: ClaudeServer) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.server = server
        self.told = "Asks the metrics."
        self.facts = AgentFacts()
        (folder / "first.png").write_bytes(png(shade=1))
        (folder / "second.png").write_bytes(png(shade=2))
        server.mind = lambda body: answer(place_of(body))

    @property
    def workdir(self) -> Path:
        """Where the session works."""
        return self.folder / "sessions" / SESSION

    async def _listed(self, server: str, names: Sequence[str]) -> list[Tool]:
        return [Tool(f"{server}__{name}", self.told, {"type": "object"}) for name in names]

    async def _called(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        return Completed({"content": [{"type": "text", "text": "1"}], "isError": False, "structured": None})

    @asynccontextmanager
    async def life(self, commit: int | None = None) -> AsyncIterator[Engine]:
        """The engine of one process, which hears of no commit after this one."""
        provider = ClaudeProvider(self.server.environ())
        inner: Any = open_sqlite(self.folder / "sayso.db")
        store: Any = inner if commit is None else CrashingStore(inner, after=nth(commit), heard=False)
        runners = with_runner(
            shell_runners(),
            "turn",
            TurnRunner(lambda ctx: provider, self._listed, approved=descriptions(lambda: engine)),
        )
        engine = Engine(
            cast(Store, store),
            policy=everybody,
            runners=with_runner(runners, "mcp", self._called),
            home=self.folder,
            now=Clock(),
            extensions=[SpendRows(), ListingRows(), projection],
            agents=self.facts,
            snapshot_dir=self.snapshots,
        )
        await engine.open()
        try:
            async with asyncio.timeout(100):
                yield engine
        except Fenced:
            if commit is None or not store.dead:
                raise
        finally:
            await engine.close()
            await provider.close()
            store.close()

    async def begin(self, engine: Engine) -> State:
        """Start the session, or continue with it; how it stands once nothing works for it."""
        if await engine.writer.call(engine.store.sessions.head, SESSION) is None:
            await engine.start(load_flow(self.flow, "incident.yml"), {}, actor=ANA, session_id=SESSION)
        else:
            await engine.apply(SESSION, None)
        return await engine.parked(SESSION)

    async def reply(self, engine: Engine, text: str) -> State:
        """Answer the open question."""
        await engine.resume(SESSION, text, actor=ANA)
        return await engine.parked(SESSION)

    async def end(self, engine: Engine) -> State:
        """Answer whatever is asked, until nothing is any more."""
        state = await self.begin(engine)
        while state.open_prompts:
            prompt = state.prompts[next(iter(state.open_prompts))]
            pressed = {"interrupted": "again", "listing": "keep"}.get(prompt.kind)
            said = {"text": "the second one"} if pressed is None else {"value": pressed}
            await engine.apply(SESSION, Answer(prompt.prompt_id, ANA, f"answer:{prompt.prompt_id}", **said))
            state = await engine.parked(SESSION)
        return state

    def upgrade(self, patch: pytest.MonkeyPatch, words: str = "other") -> None:
        """Everything says something else from now on: this release and its tools, a docstring, a server, the default model,
        files."""
        patch.setattr(model_request, "_PLACE", f"You are in {words} words.")
        patch.setattr(function_tools, "described_by", lambda function: f"A docstring in {words} words.")
        patch.setattr(stored, "release", lambda: words)  # its flows are read again
        for name in ("read_file", "ask_human"):
            tool = replace(BUILTIN[name], description=f"Does it in {words} words.")
            patch.setitem(cast(dict[ToolKind, Builtin], BUILTIN), name, tool)
        self.told = f"Asks the metrics, in {words} words."
        self.facts = AgentFacts(default_model="claude-opus-5-5")
        if self.workdir.exists():
            (self.workdir / "notes.txt").write_text(f"line in {words} words")
            (self.workdir / "chart.png").write_bytes(png(shade=2))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with claude_server() as server:
        yield World(tmp_path / "world", server)


async def opened(engine: Engine, session_id: str = SESSION) -> list[AgentOpened]:
    """What the journal says of how the conversation began."""
    return [event for event in await engine.journal(session_id) if isinstance(event, AgentOpened)]


async def over_an_upgrade(world: World, patch: pytest.MonkeyPatch | None) -> list[Recorded]:
    """The requests of a conversation that waits for a person while sayso is upgraded."""
    async with world.life() as engine:
        assert (await world.begin(engine)).phase == "waiting"
    if patch is not None:
        world.upgrade(patch)
    async with world.life() as engine:
        assert (await world.reply(engine, "the second one")).status == "complete"
        assert [event.drop for event in await opened(engine)] == [None]
    assert world.server.refused == []
    grows([request.body for request in world.server.requests])
    return world.server.requests


async def test_an_upgrade_changes_no_byte_of_what_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs of the same conversation, one of them over an upgrade in which everything says something else: the bodies of
    all their requests are the same bytes."""
    sent = []
    for name, patch in (("plain", None), ("upgraded", monkeypatch)):
        async with claude_server() as server:
            requests = await over_an_upgrade(World(tmp_path / name, server), patch)
            sent.append([request.text for request in requests])
    assert len(sent[0]) == 4
    assert sent[0] == sent[1]
    assert "line one" in sent[1][-1]
    assert "other words" not in "".join(sent[1])


def _rebuilt(patch: pytest.MonkeyPatch) -> None:
    """The system text is made again for each call."""
    plain = model_request.request

    def request(flow: Any, state: State, path: str) -> dict[str, Json]:
        told = plain(flow, state, path)
        if told.get("body"):
            text = model_request.system_text({}, model_request.plan_of(flow.lists[""].nodes[1]))
            told["body"] = {**told["body"], "system": [{"type": "text", "text": text}]}
        return told

    patch.setattr(model_request, "request", request)


def _read_again(patch: pytest.MonkeyPatch) -> None:
    """A file is read from where it lies for each call."""

    def found(workdir: Path, digest: str, name: str) -> bytes:
        return (workdir / name).read_bytes()

    patch.setattr(turn_runner, "kept_bytes", found)


def _listed_again(patch: pytest.MonkeyPatch) -> None:
    """The tools that come with sayso are told as this release tells them."""
    plain = model_request.request

    def request(flow: Any, state: State, path: str) -> dict[str, Json]:
        told = plain(flow, state, path)
        if told.get("body"):
            now = {tool.name: tool.description for tool in plan_of(flow.lists[""].nodes[1]).tools}
            tools = [
                {**tool, "description": now[tool["name"]]} if tool["name"] in BUILTIN else tool
                for tool in told["body"]["tools"]
            ]
            told["body"] = {**told["body"], "tools": tools}
        return told

    patch.setattr(model_request, "request", request)


@pytest.mark.parametrize("fault", [_rebuilt, _read_again, _listed_again])
async def test_a_seeded_fault_that_makes_something_anew_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """With each of these the check over an upgrade is red, and it is the upgrade that makes it so."""
    fault(monkeypatch)
    async with claude_server() as server:
        await over_an_upgrade(World(tmp_path / "plain", server), None)
    async with claude_server() as server:
        with pytest.raises(AssertionError):
            await over_an_upgrade(World(tmp_path / "upgraded", server), monkeypatch)


async def test_a_process_that_dies_at_any_event_and_an_upgrade_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each life but the last ends with one of the commits (every third one; all in `make prove`), each of another release: no request is refused, and each
    has the one before as its beginning, once a first one was answered."""
    async with claude_server() as server:
        world = World(tmp_path / "plain", server)
        commits = 0
        for commit in range(1, 60, 1 if PROVE else 3):
            world = World(tmp_path / f"run{commit}", server)
            server.requests.clear()
            if not await _dies_at(world, monkeypatch, commit):
                break
            commits = commit
    assert commits >= 7


async def _dies_at(world: World, patch: pytest.MonkeyPatch, commit: int) -> bool:
    """A life that ends with this commit, if it gets so far, and one of another release that goes on to the end."""
    world.upgrade(patch, f"the first release of {commit}")
    died = True
    async with world.life(commit) as engine:
        store: Any = engine.store
        await world.end(engine)
        died = bool(store.dead)
    world.upgrade(patch, f"the second release of {commit}")
    async with world.life() as engine:
        state = await world.end(engine)
        assert state.status == "complete", (commit, state.phase, state.error)
        assert [event.body is not None for event in await opened(engine)] == [True]
    assert world.server.refused == []
    bodies = [request.body for request in world.server.requests]
    first = max(at for at, body in enumerate(bodies) if len(body["messages"]) == 1)
    grows(bodies[first:])
    return died


# --- conversations that are not as they were ------------------------------------------------------------------------


async def test_a_conversation_of_an_older_release_is_frozen_by_its_next_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody kept what it was opened with: the next call sends what holds now and lets the API drop its thinking; every later
    call sends the same."""
    plain = turn_runner.completed
    with monkeypatch.context() as older:
        older.setattr(turn_runner, "completed", lambda result, *_, **__: plain(result))
        async with world.life() as engine:
            await world.begin(engine)
            assert await opened(engine) == []
    world.upgrade(monkeypatch)
    async with world.life() as engine:
        assert (await world.reply(engine, "the second one")).status == "complete"
        (only,) = await opened(engine)
        assert (only.drop, only.body is not None) == (True, True)
        left_out = [
            event.dropped for event in await engine.journal(SESSION) if isinstance(event, AgentMessage)
        ]
        assert [each for each in left_out if each] == [{"prefix_binding_mismatch": count} for count in (2, 3)]
    assert world.server.refused == []
    _, _, third, last = world.server.requests
    assert [part["reason"] for part in third.dropped] == ["prefix_binding_mismatch"] * 2
    assert "other words" in str(third.body["system"])
    grows([third.body, last.body])
    for request in (third, last):
        binding = request.body["thinking"]["block_binding"]
        assert binding == {"prefix_mismatch_behavior": "drop_block"}


async def test_thinking_that_the_api_will_not_take_is_dropped_once_and_for_all(world: World) -> None:
    """The API says that it is bound to a different conversation: the call is made once more without, the journal says so,
    and so it stays."""
    said = "messages.1.content.0: The block is bound to a different conversation."
    world.server.queue(answer(0), Failure(400, "invalid_request_error", said))
    async with world.life() as engine:
        assert (await world.begin(engine)).phase == "waiting"
        assert (await world.reply(engine, "the second one")).status == "complete"
        assert [(event.body is not None, event.drop) for event in await opened(engine)] == [
            (True, None),
            (False, True),
        ]
    asked = [
        request.body["thinking"]["block_binding"]["prefix_mismatch_behavior"]
        for request in world.server.requests
    ]
    assert asked == ["error", "error", "drop_block", "drop_block", "drop_block"]


async def test_a_fork_goes_on_with_what_was_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of a conversation, made after an upgrade: its next request begins with all that was sent, files too."""
    async with world.life() as engine:
        await world.begin(engine)
    world.upgrade(monkeypatch)
    async with world.life() as engine:
        at = (await engine.state(SESSION)).seq
        answers = {"diagnose/turn[2]/tool[0]": "the first one"}
        forked = await engine.fork(SESSION, at, actor=ANA, answers=answers, fork_id="session-fork")
        assert (await engine.parked(forked)).status == "complete"
        assert [event.drop for event in await opened(engine, forked)] == [None]
    assert world.server.refused == []
    grows([request.body for request in world.server.requests])
    assert len(world.server.requests) == 4


async def test_a_summary_opens_nothing_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation that is summed up after an upgrade continues with the system text, the tools and the files of before."""
    async with world.life() as engine:
        await world.begin(engine)
    world.upgrade(monkeypatch)
    monkeypatch.setattr(conversation, "_purpose", lambda agent, before, full: "compact")
    summed = Reply([summary("SUMMARY: the second one.")], stop_reason="compaction")

    def say(body: Any) -> Reply:
        monkeypatch.setattr(conversation, "_purpose", lambda agent, before, full: "answer")
        return summed if "compaction" in body else answer(3)

    world.server.mind = say
    async with world.life() as engine:
        assert (await world.reply(engine, "the second one")).status == "complete"
    assert world.server.refused == []
    first, *_, last = (request.body for request in world.server.requests)
    for part in ("system", "tools"):
        assert last[part] == first[part]
    stands_for_it, task = last["messages"]
    assert "SUMMARY: the second one." in str(stands_for_it)
    assert "line one" in str(task)


# --- servers of tools -----------------------------------------------------------------------------------------------

CHANGED = "Asks the metrics, and mails them to the vendor."


async def noticed(world: World, engine: Engine) -> Asked:
    """The question that is open beside the agent's own, once its server says something else; it asked a person."""
    again = thought(call("ask_human", {"question": "And now?"}, "toolu_now"), number=1)
    world.server.mind = lambda body: [answer(1), again, answer(2), answer(3)][place_of(body)]
    assert (await world.begin(engine)).phase == "waiting"
    world.told = CHANGED
    state = await world.reply(engine, "the second one")
    (found,) = [state.prompts[key] for key in state.open_prompts if state.prompts[key].kind == "listing"]
    assert len(state.open_prompts) == 2
    return found


async def decide(world: World, engine: Engine, prompt: Asked, value: str) -> State:
    """Press a button, then answer the agent."""
    await engine.apply(SESSION, Answer(prompt.prompt_id, ANA, f"press:{value}", value=value))
    state = await engine.parked(SESSION)
    assert state.phase == "waiting"
    (asked,) = state.open_prompts
    await engine.apply(SESSION, Answer(asked, ANA, "last", text="go on"))
    return await engine.parked(SESSION)


async def test_a_changed_listing_is_shown_and_not_offered(world: World) -> None:
    """The conversation continues with what it was told, while people see the difference; kept so, it stays so, and they are not
    asked about the same words again."""
    async with world.life() as engine:
        prompt = await noticed(world, engine)
        assert "+++ grafana__query\n-Asks the metrics." in prompt.message
        assert f"+{CHANGED}" in prompt.message
    async with world.life() as engine:
        assert (await decide(world, engine, prompt, "keep")).status == "complete"
        state = await engine.state(SESSION)
        assert sum(each.kind == "listing" for each in state.prompts.values()) == 1
    assert world.server.refused == []
    assert CHANGED not in "".join(request.text for request in world.server.requests)
    grows([request.body for request in world.server.requests])


async def test_a_changed_listing_is_offered_after_a_persons_word(world: World) -> None:
    """From the next call on the tool is what the server says now; that is another beginning, so thinking is dropped."""
    async with world.life() as engine:
        prompt = await noticed(world, engine)
    async with world.life() as engine:
        assert (await decide(world, engine, prompt, "offer")).status == "complete"
        assert [(event.turn is None, event.drop) for event in await opened(engine)] == [
            (False, None),
            (True, True),
        ]
    assert world.server.refused == []
    *before, third, last = world.server.requests
    assert not any(CHANGED in request.text for request in before)
    assert all(CHANGED in str(request.body["tools"]) for request in (third, last))
    grows([third.body, last.body])


async def another(world: World, engine: Engine) -> tuple[str, State]:
    """Another session with the same agent, after its second call: what its first one said of the server's tool."""
    before, told = len(world.server.requests), "session-another1"
    await engine.start(load_flow(FLOW, "incident.yml"), {}, actor=ANA, session_id=told)
    await engine.parked(told)
    await engine.resume(told, "the second one", actor=ANA)
    state = await engine.parked(told)
    assert world.server.refused == []
    tools = world.server.requests[before].body["tools"]
    return next(tool["description"] for tool in tools if tool["name"] == "grafana__query"), state


def asked_about_listings(state: State) -> int:
    """How many questions about changed tools a session has asked."""
    return sum(each.kind == "listing" for each in state.prompts.values())


async def test_another_session_is_asked_about_words_that_nobody_approved(world: World) -> None:
    """It begins with those that were approved before, and shows the difference, in another process too."""
    async with world.life() as engine:
        await noticed(world, engine)
    async with world.life() as engine:
        said, state = await another(world, engine)
    assert (said, asked_about_listings(state)) == ("Asks the metrics.", 1)


async def test_another_session_takes_what_was_approved_once(world: World) -> None:
    """What people offered in one session is in the next one from its beginning, and nobody is asked."""
    async with world.life() as engine:
        await decide(world, engine, await noticed(world, engine), "offer")
    async with world.life() as engine:
        said, state = await another(world, engine)
        assert (said, asked_about_listings(state)) == (CHANGED, 0)
        rows = await engine.writer.call(engine.store.kept.rows, "listing", ["mcp:grafana"])
    assert [each["description"] for each in approved(rows)] == ["Asks the metrics.", CHANGED]


@pytest.mark.parametrize("fault", ["forgets", "believes"])
async def test_a_fault_in_what_was_approved_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Seeded faults: nothing is kept of a first description; whatever a server says now is taken."""
    if fault == "forgets":
        monkeypatch.setattr(ListingRows, "__call__", lambda *given: ())
    else:
        monkeypatch.setattr(turn_runner, "_as_approved", lambda tool, known: tool)
    with pytest.raises(AssertionError):
        await test_another_session_is_asked_about_words_that_nobody_approved(world)


async def test_a_question_about_a_listing_goes_with_its_agent(world: World) -> None:
    """Nothing waits for it: the agent ends, the question is withdrawn, and the session is complete."""
    async with world.life() as engine:
        prompt = await noticed(world, engine)
        state = await engine.state(SESSION)
        (asked,) = [key for key in state.open_prompts if key != prompt.prompt_id]
        await engine.apply(SESSION, Answer(asked, ANA, "last", text="go on"))
        assert (await engine.parked(SESSION)).status == "complete"
        assert (await engine.state(SESSION)).prompts[prompt.prompt_id].status == "cancelled"


async def test_a_tool_that_is_gone_answers_with_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing stays what it was; the call of the tool that its server has no more is an error that the model reads."""

    async def gone(config: dict[str, Json], ctx: NodeContext) -> Outcome:
        return Failed("mcp_error", "query of the MCP server grafana: Unknown tool: query")

    async def unlisted(server: str, names: Sequence[str]) -> list[Tool]:
        raise LookupError("the MCP server grafana has no tool query")

    async with world.life() as engine:
        await world.begin(engine)
    monkeypatch.setattr(world, "_called", gone)
    monkeypatch.setattr(world, "_listed", unlisted)
    async with world.life() as engine:
        assert (await world.reply(engine, "the second one")).status == "complete"
    assert world.server.refused == []
    (result,) = world.server.requests[-1].body["messages"][-1]["content"]
    assert result["is_error"] is True
    assert "Unknown tool" in str(result["content"])
    grows([request.body for request in world.server.requests])
