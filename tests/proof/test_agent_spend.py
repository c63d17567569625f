"""Caps hold: bills, even for lost answers, exceed them by at most the unjournaled parts of one call, whatever dies and when."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from engine.flow import Flow
from engine.flow.load import load_flow
from engine.journal.state import Asked, State
from engine.messages.model_limits import DEFAULT_MODEL
from engine.messages.prices import DEFAULTS, cost
from engine.messages.turns import Usage
from engine.models.claude import ClaudeProvider
from engine.models.provider import Provider
from tests.proof.talks import Death, Person, begin, live, mortal, opened, said
from tests.support.claude_mind import Direct, Mind, tokens
from tests.support.claude_server import Reply, call, claude_server
from tests.support.engine import SESSION, START, Backing, Clock
from tests.support.proving import PROVE, PROVE_SEED

RUNS = 200 if PROVE else 10
OVER_HTTP = 25 if PROVE else 1
DAYS = 20 if PROVE else 1
SESSIONS = [f"session-0badcaf{number}" for number in range(4)]
MOST_LIVES = 150

LOOP = """
flow: loop
tools:
  note:
    description: Keep a note
    input: {text: {type: string}}
    type: set
    with: {kept: "{{ [input.text, input.text, input.text, input.text, input.text] | join(input.text) }}"}
nodes:
  - id: looper
    type: agent
    with: {prompt: Find out why., tools: [note], max_tokens: 2000, max_turns: 1000000%s}
    retry: {attempts: 1000, delay: 1s}
"""


def loop(max_cost: Decimal | None = None) -> Flow:
    """A flow whose agent goes on until its money is used up."""
    return load_flow(LOOP % ("" if max_cost is None else f", max_cost: {max_cost}"), "loop.yml")


def shown(max_cost: Decimal) -> Flow:
    """The same with a file that its agent is shown in each call."""
    return load_flow(LOOP % f", files: [grows.log], max_cost: {max_cost}", "loop.yml")


def looping(chance: random.Random, meanwhile: Callable[[], None] = lambda: None) -> Mind:
    """A model that never concludes: it always takes another note, long or short; some of its streams break off.
    `meanwhile` happens while it answers."""

    def say(place: int, body: dict[str, Any]) -> Reply:
        meanwhile()
        text = "x" * chance.choice([1, 50, 300, 1500])
        broken = chance.choice([None] * 8 + ["text_delta", "message_start"])
        return Reply(said("On and on.", call("note", {"text": text}, f"toolu_{place}")), cut_after=broken)

    return Mind(say, dear=True)


def death(chance: random.Random) -> Death:
    """The end of a life, somewhere in the conversation."""
    return Death(chance.randint(2, chance.choice([9, 40])), before=chance.random() < 0.5)


def files_sent(mind: Mind) -> Decimal:
    """What was billed for files in calls before the first answer: nobody has counted their tokens yet."""
    first = [body["messages"][0]["content"] for body in mind.requests if len(body["messages"]) == 1]
    sent = [block for content in first for block in content if block["type"] == "document"]
    return cost(Usage(cache_write_tokens=sum(tokens(block, 1) for block in sent)), DEFAULTS[DEFAULT_MODEL])


@dataclass
class Wallet:
    """Somebody who is asked at the cap, raises it so many times, and sees that it was kept until then."""

    mind: Mind
    cap: Decimal
    raises: int
    said: dict[str, str] = field(default_factory=dict)
    """By question: an answer may be lost with a life, and is given again."""

    def answer(self, prompt: Asked) -> str:
        """What is decided."""
        if prompt.kind != "budget":
            return "again"
        if prompt.prompt_id not in self.said:
            assert self.mind.billed <= self.cap + files_sent(self.mind)
            self.said[prompt.prompt_id] = "raise" if len(self.said) < self.raises else "stop"
            if self.said[prompt.prompt_id] == "raise":
                self.cap = Decimal(prompt.caps["maxCost"])
        return self.said[prompt.prompt_id]


async def spend(
    provider: Provider,
    mind: Mind,
    chance: random.Random,
    folder: Path,
    flow_of: Callable[[Decimal], Flow] = loop,
) -> Wallet:
    """A looping agent with a cap, killed and held at random until people stop it at the cap."""
    cap, backing = Decimal(chance.choice(["0.2", "0.4", "0.8"])), Backing("memory", folder)
    flow, wallet = flow_of(cap), Wallet(mind, cap, chance.choice([0, 0, 1]))
    for number in range(MOST_LIVES):
        store = mortal(backing.open(), death(chance) if number < MOST_LIVES - 1 else None)
        held = [chance.randint(1, 6)] if chance.random() < 0.3 else []
        if await live(flow, store, folder, provider, hold_after=held, answer=wallet.answer):
            break
    assert mind.refused == []
    assert mind.billed <= wallet.cap + files_sent(mind), f"billed {mind.billed} of {wallet.cap}"
    assert len(wallet.said) == wallet.raises + 1, "people were not asked at the cap"
    return wallet


@pytest.mark.timeout(900)
async def test_a_model_that_loops_never_bills_more_than_its_cap(tmp_path: Path, hit: Counter[str]) -> None:
    """Killed, held and broken off at random, an agent stops at its cap and asks; what was billed is within it."""
    used: list[float] = []
    for number in range(RUNS):
        chance = random.Random(f"{PROVE_SEED if PROVE else 0}:{number}")
        mind = looping(chance)
        wallet = await spend(Direct(mind), mind, chance, tmp_path)
        used.append(float(mind.billed / wallet.cap))
        hit["runs of a model that loops"] += 1
        hit["calls of models that loop"] += len(mind.requests)
    assert max(used) > 0.3, "a cap that is never come near to shows nothing"


@pytest.mark.timeout(900)
async def test_a_file_takes_one_call_past_its_cap_and_no_other(tmp_path: Path, hit: Counter[str]) -> None:
    """The agent is shown a log that grows while it answers: each call that sends it before it was counted may bill its bytes
    beyond the cap, and nothing more. Its calls are killed, held and broken off at random."""
    log = tmp_path / "sessions" / SESSION / "grows.log"
    log.parent.mkdir(parents=True)
    for number in range(RUNS // 2):
        chance = random.Random(f"{PROVE_SEED if PROVE else 0}:file:{number}")
        log.write_text("it began\n" * chance.choice([1, 300, 9000]))

        def grow(chance: random.Random = chance) -> None:
            with log.open("a") as file:
                file.write("disk full\n" * chance.choice([0, 1, 1000, 8000]))

        mind = looping(chance, grow)
        await spend(Direct(mind), mind, chance, tmp_path, shown)
        hit["runs of a model that is shown a file"] += 1


@pytest.mark.timeout(900)
async def test_the_same_over_http(tmp_path: Path, hit: Counter[str]) -> None:
    """What a server counts, with Anthropic's SDK and streams that break off, stays within the cap."""
    for number in range(OVER_HTTP):
        chance = random.Random(f"{PROVE_SEED if PROVE else 0}:http:{number}")
        async with claude_server() as server:
            server.mind = mind = looping(chance)
            provider = ClaudeProvider(server.environ())
            await spend(provider, mind, chance, tmp_path)
            await provider.close()
            assert server.refused == []
        hit["runs of a model that loops, over HTTP"] += 1


def asks(state: State) -> bool:
    """Whether people are asked at the cap of the day, and nothing else continues."""
    found = [state.prompts[prompt_id] for prompt_id in state.open_prompts]
    return [(spec.kind, spec.scope) for spec in found] == [("budget", "day")]


@pytest.mark.timeout(900)
async def test_sessions_at_once_never_bill_more_than_the_cap_of_the_day(
    tmp_path: Path, hit: Counter[str]
) -> None:
    """Four looping sessions, killed at random, share a day's cap: it holds, and each of them asks people at it."""
    for number in range(DAYS):
        chance, folder = random.Random(f"{PROVE_SEED if PROVE else 0}:day:{number}"), tmp_path
        mind, cap = looping(chance), Decimal(chance.choice(["0.4", "0.8"]))
        backing, states, flow = Backing("memory", folder), dict[str, State](), loop()
        for life in range(MOST_LIVES):
            end = (
                Death(chance.randint(4, 20), before=chance.random() < 0.5) if life < MOST_LIVES - 1 else None
            )
            store = mortal(backing.open(), end)
            clock = Clock()
            async with opened(store, folder, Direct(mind), clock=clock, day_cap=cap) as engine:
                for each in SESSIONS:
                    await begin(engine, flow, each)
                for each in SESSIONS * 50:
                    states[each] = await engine.parked(each)
                    if not store.dead and not asks(states[each]):
                        await Person(engine, clock, session_id=each).act(lambda prompt: "again")
            if not store.dead and all(map(asks, states.values())):
                break
        assert all(map(asks, states.values())), "not all of them ask"
        assert mind.refused == []
        assert mind.billed <= cap, f"billed {mind.billed} of {cap}"
        store = mortal(backing.open())
        assert mind.billed * 10**9 <= store.spend.on(START[:10]) <= cap * 10**9
        store.close()
        hit["days of four sessions that loop"] += 1
    assert SESSION not in SESSIONS
