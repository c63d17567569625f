"""Agents in a whole engine with Anthropic's SDK, against a local server that speaks the Messages API over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from engine.decide.agents.spend_projection import SpendRows
from engine.decide.commands import Due, Steer
from engine.flow.load import load_flow
from engine.journal.state import State
from engine.language.codec import Json
from engine.messages.model_limits import AgentFacts
from engine.messages.prices import DEFAULTS
from engine.messages.turns import TextDelta, TurnEvent
from engine.models.claude import ClaudeProvider
from engine.models.turn_runner import TurnRunner
from engine.nodes.runtime.table import with_runner
from engine.storage.open import MemoryStore
from tests.nodes.pictures import png
from tests.support.claude_mind import unmarked
from tests.support.claude_rules import summary
from tests.support.claude_server import ClaudeServer, Failure, Raw, Reply, call, claude_server, text
from tests.support.engine import ANA, SESSION, EngineRig, running, shell_runners

AGENT = """
flow: incident
tools:
  logs:
    description: The last lines of a log
    input: {{service: {{type: string}}}}
    type: shell
    with: {{run: [echo, "log of {{{{ input.service }}}}"]}}
    on_crash: again
nodes:
  - id: diagnose
    type: agent
    with: {{prompt: Why is it down?, tools: [logs, ask_human]{more}}}
"""
DB, WEB = call("logs", {"service": "db"}, "toolu_db"), call("logs", {"service": "web"}, "toolu_web")


@dataclass
class Stage:
    """An engine, the server that its agents ask, and what was streamed."""

    rig: EngineRig
    server: ClaudeServer
    told: list[TurnEvent] = field(default_factory=list)
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    def _hear(self, session_id: str, path: str, event: TurnEvent) -> None:
        self.told.append(event)
        if isinstance(event, TextDelta):
            self.heard.set()

    async def run(self, *replies: Reply | Failure | Raw, more: str = "", flow: str = AGENT) -> State:
        """Start a session whose agent gets these answers, and wait until nothing works for it."""
        await self.start(*replies, more=more, flow=flow)
        return await self.parked()

    async def start(self, *replies: Reply | Failure | Raw, more: str = "", flow: str = AGENT) -> None:
        """Start it."""
        self.rig.engine.executor.on_stream = self._hear
        self.server.queue(*replies)
        loaded = load_flow(flow.format(more=f", {more}" if more else ""), "incident.yml")
        await self.rig.engine.start(loaded, {}, actor=ANA, session_id=SESSION)

    async def parked(self) -> State:
        """The session once nothing works for it."""
        async with asyncio.timeout(30):
            return await self.rig.engine.parked(SESSION)

    async def later(self) -> State:
        """The time of the one timer comes: what waits for it continues."""
        (timer,) = (await self.rig.engine.state(SESSION)).timers.values()
        self.rig.clock.now = max(self.rig.clock.now, timer.due_at)
        await self.rig.engine.apply(SESSION, Due(timer.timer_id))
        return await self.parked()

    def sent(self, number: int = -1) -> list[Json]:
        """The messages of a request."""
        return list(self.server.requests[number].body["messages"])


@asynccontextmanager
async def staged(folder: Path, agents: AgentFacts | None = None, **settings: Any) -> AsyncIterator[Stage]:
    """A stage; at its end the server has refused nothing."""
    async with claude_server() as server:
        provider = ClaudeProvider(server.environ(), **settings)
        runners: Mapping[str, Any] = with_runner(shell_runners(), "turn", TurnRunner(lambda ctx: provider))
        options: dict[str, Any] = {"extensions": [SpendRows()], "agents": agents}
        async with running(MemoryStore(), folder, runners=runners, **options) as rig:
            yield Stage(rig, server)
        await provider.close()
        assert server.refused == []


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as found:
        yield found


def said(state: State) -> str:
    """The agent's last words."""
    assert state.status == "complete", state.error
    return str(state.nodes["diagnose"].output["text"])


# --- tools -------------------------------------------------------------------------------------------------------


async def test_tools_of_one_answer_run_and_their_results_go_back_together(stage: Stage) -> None:
    """Two calls in one answer: both programs run, and the next request has both results, in the order of the calls."""
    state = await stage.run(Reply([{"type": "text", "text": "Both."}, WEB, DB]), text("The disk is full."))
    assert said(state) == "The disk is full."
    results = stage.sent()[-1]["content"]
    assert [block["tool_use_id"] for block in results] == ["toolu_web", "toolu_db"]
    assert "log of web" in str(results[0])
    assert "log of db" in str(results[1])
    assert state.nodes["diagnose"].output["usage"] == {"input_tokens": 200, "output_tokens": 40}


# --- what goes wrong -----------------------------------------------------------------------------------------------


async def asked_again(stage: Stage, wrong: Reply | Failure | Raw) -> State:
    """The session after this first reply, a wait that no process waits, and a good answer to the same request."""
    state = await stage.run(wrong, text("The disk is full."))
    assert state.status == "paused"
    assert sorted(run.type for run in state.nodes.values()) == ["agent", "turn"]
    assert said(await stage.later()) == "The disk is full."
    assert stage.sent(0) == stage.sent(1)
    return await stage.rig.engine.state(SESSION)


@pytest.mark.parametrize(
    "wrong",
    [
        text("The disk is full.", cut_after="text_delta"),
        Reply([DB], cut_after="input_json_delta"),
        Failure(500, "api_error"),
    ],
    ids=["cut", "cut in a tool", "500"],
)
async def test_what_is_no_answer_is_asked_for_again(stage: Stage, wrong: Reply | Failure | Raw) -> None:
    """After a wait that no process waits, the same request is made; nothing of the broken answer stays or ran. What
    was set aside for it counts, as it may have been paid."""
    spent = (await asked_again(stage, wrong)).spent
    assert float(spent.unsure) > float(spent.cost) > 0


@pytest.mark.parametrize(
    "refusal",
    [Failure(529, "overloaded_error"), Failure(429, "rate_limit_error")],
    ids=["529", "429"],
)
async def test_what_is_refused_is_asked_for_again_and_costs_nothing(stage: Stage, refusal: Failure) -> None:
    """A provider that refuses before any answer is asked again, and only the answer is paid."""
    spent = (await asked_again(stage, refusal)).spent
    assert float(spent.unsure) == float(spent.reserved) == spent.unsure_tokens == 0
    assert float(spent.cost) > 0


# --- forms, files, long conversations ------------------------------------------------------------------------------


SERVED = "server_tools: {web_search: {domains: [example.com], max_uses: 2}, code_execution: {}}"
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "disk"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}


async def test_tools_of_the_provider_are_offered_and_paid_for(stage: Stage) -> None:
    """Those that the agent names, with its allow-list; searches cost, and code continues in its container."""
    usage = {"input_tokens": 1_000, "output_tokens": 100, "server_tool_use": {"web_search_requests": 2}}
    box = {"id": "box_1", "expires_at": "2999-01-01T00:00:00Z"}
    both = Reply([SEARCH, FOUND, DB], usage=usage, container=box)
    state = await stage.run(both, text("The disk is full.", usage=usage), more=SERVED)
    assert said(state) == "The disk is full."
    first, second = (request.body for request in stage.server.requests)
    assert [tool for tool in first["tools"] if "type" in tool] == [
        {
            "name": "web_search",
            "type": "web_search_20260318",
            "max_uses": 2,
            "allowed_domains": ["example.com"],
        },
        {"name": "code_execution", "type": "code_execution_20260521", **first["tools"][-1]},
    ]
    assert ("container" in first, second["container"]) == (False, "box_1")
    # Twice 1,000 at $2, 100 at $10, and two searches at a cent.
    assert state.nodes["diagnose"].output["cost"] == 0.046


async def test_what_paused_is_taken_back_as_it_was(stage: Stage) -> None:
    """Words that came while a tool of the provider was open are behind what it has given, and beside no other result."""
    ask = call("ask_human", {"question": "Which one?"}, "toolu_ask")
    paused = Reply([FOUND, {**SEARCH, "id": "srv_2"}], stop_reason="pause_turn")
    found = [{**FOUND, "tool_use_id": "srv_2"}, text("Both are full.").blocks[0]]
    state = await stage.run(Reply([SEARCH, ask]), paused, Reply(found), text("Done."), more=SERVED)
    assert state.phase == "waiting"
    await stage.rig.engine.apply(SESSION, Steer("hurry up", ANA, "key-1"))
    assert said(await stage.rig.reply(SESSION, "the second one")) == "Done."
    assert "hurry up" not in str(stage.sent(1)[-1])
    assert stage.sent(2)[-1]["role"] == "assistant"
    assert "hurry up" in str(stage.sent(3)[-1])


LONG = Reply([DB], usage={"input_tokens": 160_000, "output_tokens": 20})
SUMMED = Reply([summary("The log of db was read.")], stop_reason="compaction")
FORM = "output: {type: object, properties: {cause: {type: string}}, required: [cause]}"


async def test_a_long_conversation_goes_on_from_a_summary_that_the_api_signed(stage: Stage) -> None:
    """It is first and as it came, instead of the rest; then the task word for word. A second one takes its place."""
    again = Reply([call("logs", {"service": "db"}, "toolu_2")], usage=LONG.usage)
    second = Reply([summary("The log was read twice.")], stop_reason="compaction")
    done = text('{"cause": "disk"}')
    state = await stage.run(replace(LONG), SUMMED, again, second, done, more=FORM)
    assert state.nodes["diagnose"].output["data"] == {"cause": "disk"}
    asked, after, last = (stage.server.requests[number] for number in (1, 2, 4))
    assert asked.body["compaction"] == {"type": "summarize"}
    assert "format" not in asked.body.get("output_config", {})
    assert "compact-2026-09-04" in after.headers["anthropic-beta"]
    first, task = after.body["messages"]
    assert first == {"role": "assistant", "content": [summary("The log of db was read.")]}
    assert "Why is it down?" in str(task)
    assert "format" in after.body["output_config"]
    assert last.body["messages"][0]["content"] == [summary("The log was read twice.")]
    assert len(last.body["messages"]) == 2


@pytest.mark.parametrize(
    "instead",
    [
        text("I would rather go on.", stop_reason="end_turn"),
        Reply([], stop_reason="refusal"),
        Reply([], stop_reason="tool_use"),
        Reply([{"type": "compaction", "content": None}], stop_reason="compaction"),
        Failure(400, "invalid_request_error", "compaction: Extra inputs are not permitted"),
    ],
    ids=["answer", "refusal", "tool", "failed", "refused"],
)
async def test_what_is_no_summary_takes_the_place_of_nothing(stage: Stage, instead: Reply | Failure) -> None:
    """Whatever the API says instead of a summary: the model is asked for one in words, of all that was said."""
    state = await stage.run(replace(LONG), instead, text("SUMMARY: read."), text("The disk is full."))
    assert said(state) == "The disk is full."
    assert "toolu_db" in str(stage.sent(2))
    assert "Write a summary" in str(stage.sent(2)[-1])
    assert "SUMMARY: read." in str(stage.sent(3))


async def test_a_long_conversation_goes_on_from_its_summary(tmp_path: Path) -> None:
    """A model for which the API makes none is asked in words, near its limit; the next request has that instead of the rest."""
    small = replace(DEFAULTS["claude-haiku-4-5"], context=80_000)
    facts = AgentFacts(prices={**DEFAULTS, "claude-haiku-4-5": small})
    async with staged(tmp_path, facts) as stage:
        long = Reply([DB], usage={"input_tokens": 40_000, "output_tokens": 20})
        told = text("SUMMARY: the log of db was read.")
        state = await stage.run(long, told, text("The disk is full."), more="model: claude-haiku-4-5")
        assert said(state) == "The disk is full."
        assert "Write a summary" in str(stage.sent(1)[-1])
        (only,) = stage.sent(2)
        assert "Why is it down?" in str(only)
        assert "SUMMARY: the log of db was read." in str(only)
        assert "toolu_db" not in str(only)


CHART = """
flow: incident
nodes:
  - id: make
    type: shell
    with: {{run: [cp, first.png, chart.png]}}
  - id: diagnose
    type: agent
    with: {{prompt: Draw it., tools: [read_file, {{shell: {{commands: [cp *]}}}}]}}
"""


async def test_a_picture_that_the_model_reads_is_shown_to_it(stage: Stage, tmp_path: Path) -> None:
    """It is an image in the result of the call; drawn again under its name it is another picture, and the
    one that was sent stays what it was."""
    folder = tmp_path / "sessions" / SESSION
    folder.mkdir(parents=True)
    (folder / "first.png").write_bytes(png(shade=1))
    (folder / "second.png").write_bytes(png(shade=2))

    def read(number: int) -> Reply:
        return Reply([call("read_file", {"path": "chart.png"}, f"toolu_r{number}")])

    copied = call("shell", {"command": "cp second.png chart.png"}, "toolu_c")
    state = await stage.run(read(1), Reply([copied]), read(2), text("Blue."), flow=CHART)
    assert said(state) == "Blue."
    pictures = [
        [part["type"] for part in block["content"]]
        for message in stage.sent()
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert pictures == [["text", "image"], ["text"], ["text", "image"]]
    assert unmarked(stage.sent(1)) == unmarked(stage.sent()[:3])


# --- people while it streams ---------------------------------------------------------------------------------------


async def test_an_abort_while_it_streams_hangs_up(stage: Stage) -> None:
    """The session ends without waiting for the server."""
    slow = text("The disk is full.", hold_after="text_delta")
    await stage.start(slow)
    await asyncio.wait_for(stage.heard.wait(), 20)
    await stage.rig.engine.abort(SESSION, actor=ANA)
    assert (await stage.parked()).outcome == "aborted"
    await asyncio.wait_for(slow.gone.wait(), 20)
