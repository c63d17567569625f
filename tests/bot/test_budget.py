"""The budget of calls: who goes first, how much goes through, and what follows when Slack refuses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bot.config.settings import SettingsError, load_settings
from bot.doctor import checks
from bot.intents.session_rows import edit_row
from bot.wire import limits
from bot.wire.budget import FULL, Budget, Limit, Urgency, limits_of, urgency
from bot.wire.client import RateLimited, in_turn
from engine.storage.open import MemoryStore
from tests.support.simulated import simulated

POST, EDIT, READ = "chat.postMessage", "chat.update", "conversations.replies"
MINUTE = 60.0


class Slack:
    """Counts calls by method as Slack does, in a sliding minute, and refuses those above. `at` has the times of calls."""

    def __init__(self, most: dict[str, int] | None = None, seconds: float = 0.05) -> None:
        self.most = most or {}
        self.seconds = seconds
        self.taken: dict[str, list[float]] = {}
        self.refused: dict[str, list[float]] = {}
        self.away_for: dict[str, float] = {}

    async def __call__(self, method: str) -> None:
        """Answer a call."""
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(self.seconds)
        taken = self.taken.setdefault(method, [])
        recent = [at for at in taken if at > now - MINUTE]
        if self.away_for.get(method, 0.0) > now or len(recent) >= self.most.get(method, 10_000):
            self.refused.setdefault(method, []).append(now)
            raise RateLimited(
                max(1.0, self.away_for.get(method, 0.0) - now, recent[0] + MINUTE - now if recent else 0)
            )
        taken.append(now)


def called(budget: Budget, slack: Slack, method: str, how: Urgency, channel: str = "") -> asyncio.Task[float]:
    """A call of that urgency; the result is when Slack had it."""

    async def call() -> float:
        with urgency(how):
            await in_turn(budget, method, lambda: slack(method), channel)
        return asyncio.get_running_loop().time()

    return asyncio.create_task(call())


async def all_of(tasks: list[asyncio.Task[float]]) -> list[float]:
    """When each was done."""
    return list(await asyncio.gather(*tasks))


@simulated
async def test_a_minute_takes_no_more_than_the_limit() -> None:
    """However many calls wait, no sixty seconds have more of them than Slack takes: none is refused."""
    slack, budget = Slack({EDIT: 50}), Budget()
    await all_of([called(budget, slack, EDIT, Urgency.WAITED_FOR) for _ in range(170)])
    assert slack.refused == {}
    assert len(slack.taken[EDIT]) == 170
    assert slack.taken[EDIT][49] < 1.0


@simulated
async def test_the_more_urgent_goes_first_and_then_the_older() -> None:
    """What is asked overtakes what is only told; of two alike the older goes first."""
    slack, budget = Slack(), Budget({EDIT: Limit(1)})
    order = [Urgency.RESULT, Urgency.PROGRESS, Urgency.QUESTION, Urgency.RESULT, Urgency.QUESTION]
    first = called(budget, slack, EDIT, Urgency.RESULT)
    await asyncio.sleep(0)
    times = await all_of([called(budget, slack, EDIT, how) for how in order])
    await first
    assert sorted(range(5), key=times.__getitem__) == [2, 4, 0, 3, 1]


@simulated
async def test_buttons_go_fast_behind_a_burst_of_cards() -> None:
    """Cards go at an even pace, a few ahead, so that sixty of them do not use up the minute: a press behind them waits
    seconds."""
    slack, budget = Slack({EDIT: 50}), Budget()
    cards = [called(budget, slack, EDIT, Urgency.PROGRESS) for _ in range(60)]
    await asyncio.sleep(30)
    begun = asyncio.get_running_loop().time()
    done = await all_of([called(budget, slack, EDIT, Urgency.WAITED_FOR) for _ in range(20)])
    assert max(done) - begun < 3.0
    await all_of(cards)
    gaps = [later - earlier for earlier, later in pairwise(slack.taken[EDIT][limits.AHEAD : 24])]
    assert min(gaps) > 1.2
    assert slack.refused == {}


@simulated
async def test_catch_up_leaves_ten_reads_to_others() -> None:
    """Reads that nobody waits for go at once, but for ten: who waits for an answer has it at once."""
    slack, budget = Slack({READ: 50}), Budget()
    reads = [called(budget, slack, READ, Urgency.PROGRESS) for _ in range(60)]
    await asyncio.sleep(5)
    assert len(slack.taken[READ]) == 40
    await all_of([called(budget, slack, READ, Urgency.WAITED_FOR) for _ in range(10)])
    assert asyncio.get_running_loop().time() < 6
    await all_of(reads)
    assert slack.refused == {}


@simulated
async def test_a_channel_takes_five_posts_and_then_one_a_second() -> None:
    """Other channels have their own; edits are no posts."""
    slack, budget = Slack(), Budget()
    ops = [called(budget, slack, POST, Urgency.RESULT, "C1") for _ in range(8)]
    other = [called(budget, slack, POST, Urgency.RESULT, "C2") for _ in range(5)]
    assert max(await all_of(other)) < 1
    times = await all_of(ops)
    assert times[4] < 1
    assert all(1.0 <= later - earlier <= 1.1 for earlier, later in pairwise(times[5:]))


@simulated
async def test_after_a_refusal_one_call_probes() -> None:
    """Of fifty calls that wait while Slack refuses one tries at its end; other methods and channels continue."""
    slack, budget = Slack(), Budget(limits_of(None))
    slack.away_for[EDIT] = 5.0
    first = called(budget, slack, EDIT, Urgency.PROGRESS)
    await asyncio.sleep(1)
    rest = [called(budget, slack, EDIT, Urgency.WAITED_FOR) for _ in range(50)]
    slack.away_for[EDIT] = 20.0
    await called(budget, slack, POST, Urgency.RESULT, "C1")
    assert asyncio.get_running_loop().time() < 2
    await asyncio.sleep(9)
    assert len(slack.refused[EDIT]) == 2
    await all_of([first, *rest])
    assert len(slack.refused[EDIT]) == 2
    assert slack.taken[EDIT][1] - slack.taken[EDIT][0] >= slack.seconds


@simulated
async def test_a_refused_channel_holds_back_no_other() -> None:
    """What Slack refuses in one channel is taken in another at once."""
    budget = Budget(limits_of(None))
    begun = asyncio.get_running_loop().time()

    async def refused() -> None:
        if asyncio.get_running_loop().time() < begun + 30:
            raise RateLimited(30)

    there = asyncio.create_task(in_turn(budget, POST, refused, "C1"))
    await asyncio.sleep(0.1)
    await called(budget, Slack(), POST, Urgency.RESULT, "C2")
    assert asyncio.get_running_loop().time() - begun < 1
    await there
    assert asyncio.get_running_loop().time() - begun >= 30


@simulated
async def test_where_slack_takes_half_the_calls_few_are_refused() -> None:
    """A limit that is halved without notice: less goes through after each refusal, and after two minutes next to none is
    refused."""
    slack, budget = Slack({EDIT: 25}), Budget()

    async def flood() -> None:
        tasks = []
        for _ in range(600):
            tasks.append(called(budget, slack, EDIT, Urgency.CLOSING))
            await asyncio.sleep(1)
        for task in tasks:
            task.cancel()

    await flood()
    late = [at for at in slack.refused[EDIT] if at > 120]
    taken = [at for at in slack.taken[EDIT] if at > 120]
    assert len(late) <= 0.05 * (len(late) + len(taken))
    assert len(taken) > 0.8 * 25 * 8


def test_each_refused_probe_doubles_the_wait_up_to_four_times_what_slack_says() -> None:
    """Slack may count what it refuses: whoever asks each time it may would be refused forever."""
    gate, at, waits = limits.MethodGate(50), 0.0, list[float]()
    for _ in range(4):
        probe = gate.begin(at)
        gate.end(at, made=True, probe=probe, refused_for=2.0, heard=True)
        waits.append(gate.wait(at))
        at += waits[-1]
    assert waits == [2, 4, 8, 8]


@simulated
async def test_a_spell_is_two_lines_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """One line when Slack begins to refuse, and one when it takes calls again, with how many; not one for each call."""
    caplog.set_level(logging.INFO, "sayso.slack")
    slack, budget = Slack(), Budget()
    slack.away_for[EDIT] = 40.0
    tasks = [called(budget, slack, EDIT, Urgency.WAITED_FOR) for _ in range(30)]
    await asyncio.sleep(1)
    (full,) = budget.full()
    assert (full.method, full.waiting) == (EDIT, 30)
    await all_of(tasks)
    assert budget.full() == []
    first, last = caplog.messages
    assert first.startswith("Slack refuses chat.update")
    assert "8 calls were refused" in last


@simulated
async def test_a_method_is_used_up_when_one_call_waits_long(caplog: pytest.LogCaptureFixture) -> None:
    """Where all wait, but each for some seconds only, nothing is said; then one line, and one when it has ended."""
    caplog.set_level(logging.INFO, "sayso.slack")
    slack, budget = Slack(), Budget()
    tasks = [called(budget, slack, EDIT, Urgency.CLOSING) for _ in range(8)]
    for _ in range(60):
        await asyncio.sleep(limits.WINDOW / 50)
        tasks.append(called(budget, slack, EDIT, Urgency.CLOSING))
        assert any(not task.done() for task in tasks)
    assert caplog.messages == []
    await all_of([*tasks, *(called(budget, slack, EDIT, Urgency.CLOSING) for _ in range(20))])
    first, last = caplog.messages
    assert first.startswith("the calls of a minute are used up for chat.update")
    assert last.startswith("chat.update continues")


@simulated
async def test_where_slack_is_away_one_call_at_a_time_looks_for_it() -> None:
    """After three calls without an answer the others wait for each other, whatever they call."""
    budget, most, now = Budget(limits_of(None)), 0, 0

    async def lost() -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(1)
        now -= 1
        raise ConnectionResetError

    async def attempts(number: int) -> None:
        with pytest.raises(ConnectionResetError):
            await in_turn(budget, f"method.{number}", lost)

    await asyncio.gather(*(attempts(number) for number in range(3)))
    most = 0
    await asyncio.gather(*(attempts(number) for number in range(6)))
    assert most == 1


@simulated
async def test_a_turn_that_is_not_used_goes_to_the_next() -> None:
    """Who reserved a turn and makes no call, or was cancelled meanwhile, has used nothing up."""
    slack, budget = Slack(), Budget({EDIT: Limit(1)})
    async with budget.reserved(EDIT):
        pass
    waiting = called(budget, slack, EDIT, Urgency.RESULT)
    await waiting
    given_up = called(budget, slack, EDIT, Urgency.QUESTION)
    await asyncio.sleep(1)
    given_up.cancel()
    begun = asyncio.get_running_loop().time()
    await called(budget, slack, EDIT, Urgency.RESULT)
    assert asyncio.get_running_loop().time() - begun < 62


def test_limits_are_overridden_by_method() -> None:
    """What is set takes the place of the published limit of that method alone."""
    found = limits_of({EDIT: {"a_minute": 25}})
    assert (found[EDIT].a_minute, found[READ].a_minute, found[READ].spare) == (25, 50, 10)


# --- seeded faults -----------------------------------------------------------------------------------------


def a_token_bucket(patch: pytest.MonkeyPatch) -> None:
    """Fifty at once, and one more for each 1.2 seconds: up to a hundred in the first minute."""

    def room(self: limits.MethodGate, at: float, even: bool, spare: int) -> float:
        tokens = self.__dict__.setdefault("tokens", [50.0, at])
        tokens[0] = min(50.0, tokens[0] + (at - tokens[1]) * self.a_minute / 60)
        tokens[1] = at
        return 0.0 if tokens[0] - self.under_way >= 1 else (1 - tokens[0] + self.under_way) * 1.2

    def count(self: limits.MethodGate, at: float) -> None:
        self.__dict__["tokens"][0] -= 1

    patch.setattr(limits.MethodGate, "_room", room)
    patch.setattr(limits.MethodGate, "_count", count)


def everybody_probes(patch: pytest.MonkeyPatch) -> None:
    """When the time that Slack named has ended, all that wait try at once."""
    wait = limits.Gate.wait

    def open_to_all(self: limits.Gate, at: float, **given: Any) -> float:
        self.probe = False
        return wait(self, at, **given)

    patch.setattr(limits.Gate, "wait", open_to_all)


def no_even_pace(patch: pytest.MonkeyPatch) -> None:
    """Cards burst like anything else."""
    wait = limits.Gate.wait
    patch.setattr(limits.Gate, "wait", lambda self, at, *, even=False, spare=0: wait(self, at, spare=spare))


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        (a_token_bucket, test_a_minute_takes_no_more_than_the_limit),
        (everybody_probes, test_after_a_refusal_one_call_probes),
        (no_even_pace, test_buttons_go_fast_behind_a_burst_of_cards),
    ],
)
def test_a_fault_of_the_budget_is_noticed(
    mutant: Callable[[pytest.MonkeyPatch], None],
    test: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With each of these faults one of the tests above fails."""
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        test()


# --- where it is told and set ------------------------------------------------------------------------------


def test_doctor_names_what_is_used_up_and_how_many_wait() -> None:
    """The bot notes until when a method is used up; a note of earlier says nothing any more."""
    store = MemoryStore()
    store.consume([], "2026-01-01T00:00:00.000Z", [edit_row("edit:1", "lane", "C1", "1.0", "text")])
    now = time.time()
    store.marks.move(f"{FULL}{EDIT}", f"{now + 30:.6f}")
    store.marks.move(f"{FULL}{POST}", f"{now - 300:.6f}")
    (told,) = checks.check_limits(store)
    assert told.text.startswith("Slack's limit of chat.update is used up: 1 wait, until about ")


def test_limits_are_set_by_method_and_a_mistake_is_refused(tmp_path: Path) -> None:
    """JSON, a file with it, or `off`; a field that does not exist is refused by the setting's name."""
    (tmp_path / "limits.json").write_text('{"chat.update": {"a_minute": 25}}')

    def read(raw: str) -> Any:
        return load_settings({"SAYSO_SLACK_LIMITS": raw}, cwd=tmp_path).slack_limits

    assert read("limits.json") == read('{"chat.update": {"a_minute": 25}}') == {EDIT: {"a_minute": 25}}
    assert read("off") is None
    for wrong in ('{"chat.update": {"per_minute": 25}}', '{"chat.update": 25}', "[]", "nowhere.json"):
        with pytest.raises(SettingsError, match="SAYSO_SLACK_LIMITS"):
            read(wrong)
