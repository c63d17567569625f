"""The daily cap holds across all sessions and crashes, and people are asked instead of failing runs."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from engine.decide.agents.spend_projection import SpendRows, nanos
from engine.decide.commands import Answer, Due
from engine.journal.records import NANO
from engine.journal.state import State
from engine.language.codec import Json
from engine.messages.errors import ProviderError
from engine.messages.turns import Usage
from engine.models.scripted import ScriptedProvider, script_from
from engine.models.turn_outcome import failed, no_details, unsent
from engine.models.turn_runner import TurnRunner
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, NodeContext, Outcome
from engine.run.engine import Engine
from engine.storage.open import MemoryStore
from tests.support.engine import ANA, Clock, EngineRig, Workshop, abandon, running

AGENT = """
  - id: {id}
    type: agent
    with: {{prompt: Why is it failing?, max_tokens: 1000}}
"""
FLOW = "nodes:" + AGENT.format(id="helper")
TODAY = Clock().now[:10]
COST = nanos("0.0004")
"""What the answer below costs."""


class Model(Workshop):
    """Answers model calls when the test lets it (`finish`)."""

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        return await super().__call__({"run": ["wait"]}, ctx)

    async def answer(self, path: str, text: str = "The disk is full.", **changes: Any) -> None:
        """End a model call with an answer."""
        said = {
            "content": [{"type": "text", "text": text}],
            "stopReason": "end_turn",
            "usage": {"input_tokens": 100, "output_tokens": 20},
            "model": "claude-sonnet-5-5",
            "interrupted": False,
            "requestId": None,
        }
        await self.finish(path, Completed({**said, **changes}))


def engine(folder: Path, store: MemoryStore, model: Model, cap: str | None, **options: Any) -> Any:
    """An engine with a cap for each day."""
    rows = SpendRows(None if cap is None else Decimal(cap))
    return running(store, folder, runners={"turn": model}, extensions=[rows], **options)


async def spent(rig: EngineRig) -> list[tuple[str, bool]]:
    """The calls of today, and whether what they cost is known."""
    rows = await rig.engine.writer.call(rig.engine.store.spend.rows, TODAY)
    return [(row.path, row.cost is not None) for row in rows]


async def reserved(folder: Path) -> int:
    """What one call of the agent sets aside."""
    model = Model()
    async with engine(folder, MemoryStore(), model, None) as rig:
        await rig.start(FLOW)
        await model.running("helper/turn[1]")
        return int(await rig.engine.writer.call(rig.engine.store.spend.on, TODAY))


def dollars(amount: int) -> str:
    """An amount as a cap."""
    return format(Decimal(amount) / NANO, "f")


async def asked(rig: EngineRig, session_id: str) -> State:
    """The session, once it waits for a decision about its budget."""
    state = await rig.engine.parked(session_id)
    assert [state.prompts[prompt_id].kind for prompt_id in state.open_prompts] == ["budget"]
    return state


async def decide(target: Engine, state: State, value: str) -> None:
    """Somebody answers that question."""
    (prompt_id,) = state.open_prompts
    await target.resume(state.session_id, Answer(prompt_id, ANA, "answer:6", value=value))


async def test_a_call_is_set_aside_before_it_is_made_and_settled_with_its_answer(tmp_path: Path) -> None:
    """While the model answers the most that it can cost counts, and then what it cost, once."""
    model = Model()
    async with engine(tmp_path, MemoryStore(), model, "50") as rig:
        session_id = await rig.start(FLOW)
        await model.running("helper/turn[1]")
        assert await rig.engine.writer.call(rig.engine.store.spend.on, TODAY) > COST
        assert await spent(rig) == [("helper/turn[1]", False)]
        await model.answer("helper/turn[1]")
        state = await rig.engine.parked(session_id)
        assert state.status == "complete"
        assert await rig.engine.writer.call(rig.engine.store.spend.on, TODAY) == COST


async def test_at_the_cap_of_the_day_people_are_asked_and_nothing_is_sent(tmp_path: Path) -> None:
    """A call that could pass the cap does not begin; let on, the agent is free of that cap, and its calls still count."""
    model = Model()
    async with engine(tmp_path, MemoryStore(), model, "0.001") as rig:
        state = await asked(rig, await rig.start(FLOW))
        assert (model.ran, await spent(rig), state.status) == ([], [], "paused")
        await decide(rig.engine, state, "raise")
        await model.answer("helper/turn[1]")
        assert (await rig.engine.parked(state.session_id)).status == "complete"
        assert await spent(rig) == [("helper/turn[1]", True)]


async def test_sessions_share_the_cap_of_a_day(tmp_path: Path) -> None:
    """While one session's call is in progress, another one for which not enough is left asks; a new day has its own cap."""
    one = await reserved(tmp_path / "first")
    model, clock = Model(), Clock()
    async with engine(tmp_path, MemoryStore(), model, dollars(one * 3 // 2), now=clock) as rig:
        first = await rig.start(FLOW)
        await model.running("helper/turn[1]")
        second = await asked(rig, await rig.start(FLOW))
        (prompt_id,) = second.open_prompts
        assert f"${Decimal(one // 2) / NANO:.4f} are left" in second.prompts[prompt_id].message
        await model.answer("helper/turn[1]")
        await rig.engine.parked(first)
        third = await rig.start(FLOW)
        await model.answer("helper/turn[1]")
        assert (await rig.engine.parked(third)).status == "complete"
        clock.advance(24 * 3600)
        await rig.start(FLOW)
        await model.running("helper/turn[1]")


async def test_two_agents_at_once_do_not_pass_the_cap_together(tmp_path: Path) -> None:
    """Calls that would begin in the same commit count against each other, and the session continues asking."""
    one = await reserved(tmp_path / "first")
    branches = "".join(
        f"\n      {name}:{AGENT.format(id=name).replace(chr(10), chr(10) + '      ')}" for name in ("a", "b")
    )
    flow = f"nodes:\n  - id: both\n    type: parallel\n    branches:{branches}\n"
    model = Model()
    async with engine(tmp_path, MemoryStore(), model, dollars(one * 3 // 2)) as rig:
        await rig.start(flow)
        await rig.committed.until("prompt:requested")
        assert await rig.engine.writer.call(rig.engine.store.spend.on, TODAY) <= one * 3 // 2


@pytest.mark.parametrize(
    "outcome",
    [
        Failed("internal", "who knows", {"retryable": False, "retryAfter": None, "usage": {}}),
        Failed("overloaded", "in the middle", {"retryable": False, "usage": {"input_tokens": 7}}),
        Interrupted("timeout", "too slow"),
    ],
)
async def test_a_call_without_an_answer_keeps_what_was_set_aside(tmp_path: Path, outcome: Outcome) -> None:
    """Nobody knows what a call that failed or was cut cost, so all of it counts."""
    one, model = await reserved(tmp_path / "first"), Model()
    async with engine(tmp_path, MemoryStore(), model, "50") as rig:
        await rig.start(FLOW)
        await model.finish("helper/turn[1]", outcome)
        await rig.committed.until("node:failing" if isinstance(outcome, Failed) else "node:retried")
        rows = await rig.engine.writer.call(rig.engine.store.spend.rows, TODAY)
        assert (rows[0].cost, rows[0].amount) == (None, one)


@pytest.mark.parametrize("retryable", [True, False])
async def test_a_call_that_was_refused_costs_nothing(tmp_path: Path, retryable: bool) -> None:
    """What the API refuses before there is any answer uses up nothing of the day, however often it is tried."""
    model = Model()
    refusal = Failed("overloaded", "too much to do", {"retryable": retryable, "usage": {"input_tokens": 0}})
    async with engine(tmp_path, MemoryStore(), model, "50") as rig:
        await rig.start(FLOW)
        await model.finish("helper/turn[1]", refusal)
        await rig.committed.until("node:retried" if retryable else "node:failing")
        assert await spent(rig) == [("helper/turn[1]", True)]
        assert await rig.engine.writer.call(rig.engine.store.spend.on, TODAY) == 0


def _kinds(of: type[ProviderError] = ProviderError) -> list[type[ProviderError]]:
    return [of, *(kind for below in of.__subclasses__() for kind in _kinds(below))]


FAILURES = {
    **{kind.code: failed(kind("It went wrong.")) for kind in _kinds()},
    **{f"{kind.code}, begun": failed(kind("Midway.", usage=Usage(input_tokens=7))) for kind in _kinds()},
    **{code: unsent(code, "Not sent.") for code in ("mcp", "context", "file", "NodeError")},
    "internal": Failed("internal", "KeyError: 'x'", no_details()),
}
FREE = {
    "rate_limited",
    "overloaded",
    "request_invalid",
    "context_too_long",
    "prefix_mismatch",
    "access_denied",
}
FREE |= {"spend_limit", "model_not_found", "script", "mcp", "context", "file", "NodeError"}


@pytest.mark.parametrize("name", FAILURES)
async def test_session_and_day_agree_on_what_a_failed_call_cost(tmp_path: Path, name: str) -> None:
    """By one rule: nothing where it was not sent or refused before any answer, else all that was set aside."""
    model = Model()
    async with engine(tmp_path, MemoryStore(), model, "50") as rig:
        session_id = await rig.start(FLOW)
        await model.finish("helper/turn[1]", FAILURES[name])
        state = await rig.engine.parked(session_id)
        counted = Decimal(state.spent.cost) + Decimal(state.spent.unsure) + Decimal(state.spent.reserved)
        assert await rig.engine.writer.call(rig.engine.store.spend.on, TODAY) == nanos(counted)
        assert (counted == 0) == (name in FREE)


async def test_a_call_that_was_lost_in_a_crash_counts_beside_the_one_that_follows(tmp_path: Path) -> None:
    """After a kill the call is made again as another attempt with a row of its own, and the first one's stays."""
    one, model, store = await reserved(tmp_path / "first"), Model(), MemoryStore()
    async with engine(tmp_path, store, model, "50") as rig:
        session_id = await rig.start(FLOW)
        await model.running("helper/turn[1]")
        abandon(rig.store)
        again = Model()
        async with engine(tmp_path, store.another(), again, "50") as other:
            await other.engine.apply(session_id, None)
            await again.answer("helper/turn[1]")
            assert (await other.engine.parked(session_id)).status == "complete"
            rows = await other.engine.writer.call(other.engine.store.spend.rows, TODAY)
    assert [(row.attempt, row.amount) for row in rows] == [(1, one), (2, COST)]


async def test_a_fork_pays_for_its_own_calls_only(tmp_path: Path) -> None:
    """What the session that it comes from had spent is not spent again; at the cap the fork asks."""
    ask = "\n  - id: sure\n    type: ask\n    with: {message: Sure?}\n"
    flow = FLOW.rstrip() + ask.rstrip() + AGENT.format(id="more")
    one = await reserved(tmp_path / "first")
    model = Model()
    async with engine(tmp_path, MemoryStore(), model, dollars(one + COST // 2)) as rig:
        session_id = await rig.start(flow)
        await model.answer("helper/turn[1]")
        state = await rig.engine.parked(session_id)
        assert await rig.engine.writer.call(rig.engine.store.spend.on, TODAY) == COST
        copy = await rig.engine.fork(session_id, state.seq, actor=ANA, answers={"sure": "yes"})
        await asked(rig, copy)
        assert await rig.engine.writer.call(rig.engine.store.spend.on, TODAY) == COST


async def test_a_fork_of_an_agent_that_was_let_past_the_day_asks_itself(tmp_path: Path) -> None:
    """Who let one session past the cap of the day did not let its copies."""
    model = Model()
    async with engine(tmp_path, MemoryStore(), model, "0.001") as rig:
        state = await asked(rig, await rig.start(FLOW))
        await decide(rig.engine, state, "raise")
        await model.running("helper/turn[1]")
        head = await rig.engine.head(state.session_id)
        await asked(rig, await rig.engine.fork(state.session_id, head.seq, actor=ANA))
        assert await spent(rig) == [("helper/turn[1]", False)]


async def test_a_scripted_conversation_is_paid_once(tmp_path: Path) -> None:
    """The runner, a script and the rows together: each turn has one row, settled with what the script says it used."""
    usage = {"input_tokens": 1000, "output_tokens": 100}
    script = script_from([{"error": {"kind": "overloaded"}}, {"text": "Full.", "usage": usage}])
    provider = ScriptedProvider(script)
    runner = TurnRunner(lambda ctx: provider)
    clock = Clock()
    flow = FLOW.rstrip() + "\n    retry: {attempts: 2, delay: 1s, jitter: 0}\n"
    async with running(
        MemoryStore(), tmp_path, runners={"turn": runner}, extensions=[SpendRows(Decimal(50))], now=clock
    ) as rig:
        session_id = await rig.start(flow)
        await rig.engine.parked(session_id)
        clock.advance(5)
        for timer in await rig.engine.writer.call(rig.engine.store.timers.rows):
            await rig.engine.apply(session_id, Due(timer.timer_id))
        state = await rig.engine.parked(session_id)
        rows = await rig.engine.writer.call(rig.engine.store.spend.rows, TODAY)
    assert state.status == "complete"
    assert [(row.attempt, row.cost) for row in rows] == [(1, 0), (2, nanos("0.003"))]


def test_amounts_are_never_less_than_they_are() -> None:
    """A part of a billionth of a dollar counts as a whole one."""
    assert (nanos("0.0000000001"), nanos("2.5"), nanos(0), nanos("0.00000000125")) == (1, 2_500_000_000, 0, 2)
