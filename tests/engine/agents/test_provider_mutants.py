"""Seeded faults: what agents were said to do wrong of their provider, put in by a monkey patch, each seen by a test."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.decide import outages
from engine.decide.agents import conversation, outcomes
from engine.decide.commands import NodeDone
from engine.decide.step import Step
from engine.journal import events as ev
from engine.language.codec import Json
from engine.language.errors import MalformedJournal
from engine.messages import stream
from tests.engine.agents import test_outcomes, test_talk_again, test_with_server
from tests.engine.agents.talks import folds_otherwise, talk
from tests.engine.agents.test_with_server import DB, WEB, Stage, said, stage, staged
from tests.support.claude_server import Failure, Reply, text

__all__ = ["stage"]

Seen = Callable[[Path], Awaitable[None] | None]


@dataclass(frozen=True)
class Fault:
    """What is put in, and the tests of which each is to turn red."""

    apply: Callable[[pytest.MonkeyPatch], None]
    seen: tuple[Seen, ...]


# --- what no other test held ---------------------------------------------------------------------------------------


def thought(words: str) -> dict[str, Json]:
    """A block of thinking that the server signs."""
    return {"type": "thinking", "thinking": words, "signature": ""}


async def test_thoughts_go_back_in_their_places(stage: Stage) -> None:
    """Two of them, with words between: the server binds each to all that was before it."""
    answer = [thought("The disk."), {"type": "text", "text": "I look."}, thought("Or the network."), DB, WEB]
    assert said(await stage.run(Reply(answer), text("It was the disk."))) == "It was the disk."
    blocks = stage.sent()[1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text", "thinking", "tool_use", "tool_use"]
    assert [block["thinking"] for block in blocks if "thinking" in block] == ["The disk.", "Or the network."]
    assert stage.server.refused == []


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "end_turn", "model_context_window_exceeded"])
def test_half_a_summary_takes_the_place_of_nothing(reason: str) -> None:
    """The API's block counts with the stop reason that says it is whole, and with no other."""
    case = talk("tools: [shell: {commands: ['restart *']}]")
    used = {"input_tokens": 900_000, "output_tokens": 20}
    case.model("I restart it.", ("shell", {"command": "restart db"}), usage=used)
    case.tool("tool[0]", test_outcomes.RAN)
    before = len(case.agent.messages)
    assert case.request()["purpose"] == "compact"
    done = case.reply(stop=reason)
    half = {"type": "compaction", "content": "It was", "signature": "s"}
    case.when(NodeDone(done.path, done.attempt, {**done.output, "content": [half], "signed": True}))
    assert len(case.agent.messages) == before
    assert not any(isinstance(event, ev.AgentCompacted) for event in case.events)


# --- the faults ----------------------------------------------------------------------------------------------------


def _retries_end(patch: pytest.MonkeyPatch) -> None:
    """An outage uses up the tries of any failure."""
    patch.setattr(
        outages, "tries_again", lambda deadline, run, retry, error, due: run.failures + 1 < retry.attempts
    )


def _pause_is_answered(patch: pytest.MonkeyPatch) -> None:
    """That the model paused is forgotten: it is told to continue."""
    folds_otherwise(patch, "agent:outcome", lambda was, now: replace(now, resends=False))


def _emptiness_again(patch: pytest.MonkeyPatch) -> None:
    """An empty answer is asked for again with the same request."""
    plain = outcomes._alone

    def alone(step: Step, owner: str, way: str, error: dict[str, Json], **told: Json) -> None:
        if way == "said":
            outcomes._emit(step, owner, "again", text="")
        else:
            plain(step, owner, way, error, **told)

    patch.setattr(outcomes, "_alone", alone)


def _fallback_wins(patch: pytest.MonkeyPatch) -> None:
    """A refusal leads to the first of `fallbacks`, whatever people have chosen meanwhile."""
    plain = outcomes.unusable
    patch.setattr(
        outcomes,
        "unusable",
        lambda step, owner, output, stayed, asked=None: plain(step, owner, output, stayed),
    )


def _half_is_lost(patch: pytest.MonkeyPatch) -> None:
    """What was cut is forgotten by what goes on with it."""
    folds_otherwise(patch, "agent:outcome", lambda was, now: replace(now, cut=""))


def _any_summary(patch: pytest.MonkeyPatch) -> None:
    """A summary counts with any stop reason."""
    plain = conversation._signed
    patch.setattr(conversation, "_signed", lambda output: plain({**output, "stopReason": "compaction"}))


def _thoughts_turn(patch: pytest.MonkeyPatch) -> None:
    """The last thought of an answer is first."""
    plain = stream._behind_seams

    def turned(blocks: list[dict[str, Json]]) -> list[dict[str, Json]]:
        kept = plain(blocks)
        thoughts = iter([block for block in reversed(kept) if block["type"] == "thinking"])
        return [next(thoughts) if block["type"] == "thinking" else block for block in kept]

    patch.setattr(stream, "_behind_seams", turned)


def _refused_is_paid(patch: pytest.MonkeyPatch) -> None:
    """A try that the API refused counts as paid."""
    patch.setattr(outages, "unpaid", lambda run, error: False)


async def _thoughts(folder: Path) -> None:
    async with staged(folder) as found:
        await test_thoughts_go_back_in_their_places(found)


async def _refused(folder: Path) -> None:
    async with staged(folder) as found:
        await test_with_server.test_what_is_refused_is_asked_for_again_and_costs_nothing(
            found, Failure(529, "overloaded_error")
        )


FAULTS: dict[str, Fault] = {
    "a retry counts as the end": Fault(
        _retries_end, (lambda _: test_talk_again.test_an_outage_of_hours_is_waited_out("overloaded"),)
    ),
    "a pause is answered": Fault(
        _pause_is_answered,
        (lambda _: test_outcomes.test_a_pause_behind_what_a_tool_gave_is_sent_back_too(),),
    ),
    "a fallback replaces what people chose": Fault(
        _fallback_wins,
        (lambda _: test_outcomes.test_a_model_that_people_chose_is_not_replaced_by_a_fallback(),),
    ),
    "half an answer is lost": Fault(
        _half_is_lost, (lambda _: test_outcomes.test_a_text_that_was_cut_is_gone_on_with(),)
    ),
    "any summary replaces": Fault(
        _any_summary, (lambda _: test_half_a_summary_takes_the_place_of_nothing("max_tokens"),)
    ),
    "thoughts change their places": Fault(_thoughts_turn, (_thoughts,)),
    "a try that was refused is paid": Fault(
        _refused_is_paid, (lambda _: test_talk_again.test_refused_calls_use_up_no_cap(), _refused)
    ),
    "an empty answer is asked for as it was": Fault(
        _emptiness_again,
        (lambda _: test_outcomes.test_an_empty_answer_is_nudged_once_and_then_asked_about(),),
    ),
}
"""By name. Words of a frozen wire that change are in `test_frozen_wire`, plans in `tests/bot/test_agent_plans`."""


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_of_the_provider_part_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each test named for a seeded fault fails with that fault."""
    FAULTS[name].apply(monkeypatch)
    for number, seen in enumerate(FAULTS[name].seen):
        (folder := tmp_path / str(number)).mkdir()
        # A conversation that has ended, or at a cap, has no call that runs, nor the one timer: `ValueError`.
        with pytest.raises((AssertionError, ValueError, MalformedJournal)):
            found = seen(folder)
            if inspect.isawaitable(found):
                await found
