"""The row that shows on the message that started a run how it stands: sent twice at most, and never in anybody's way."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import patch

import pytest

from bot.intents.session_rows import mark_rows, reaction_row
from bot.outbound import outbox_worker
from engine.journal import events as ev
from engine.journal.records import PutOutbox
from engine.language.codec import decode
from tests.bot.outbound_kit import Rig, running_rig
from tests.bot.rendering_cases import T1, THREAD, prompt, session

HERE = "C0LOCALOPS"
BEGUN = [ev.FlowPaused(seq=5, timestamp=T1, reason="waiting")]
ENDED = [ev.SessionEnd(seq=9, timestamp=T1, status="complete")]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A bot without its ears."""
    async with running_rig(tmp_path, "memory:") as running:
        yield running


def began(ts: str) -> PutOutbox:
    """The row of a run that waits, started by this message."""
    (row,) = mark_rows(
        session(seq=0), session(prompt(), thread={**THREAD, "channel": HERE, "messageTs": ts}), BEGUN
    )
    return row


def ended(ts: str, outcome: str = "complete", **fields: object) -> PutOutbox:
    """The row of the same run once it is over."""
    thread = {**THREAD, "channel": HERE, "messageTs": ts}
    after = session(thread=thread, phase="ended", outcome=outcome, **fields)
    (row,) = mark_rows(session(prompt(), thread=thread), after, ENDED)
    return row


def marks(rig: Rig) -> list[str]:
    """The reactions on the only message."""
    (message,) = rig.workspace.messages("ops")
    return [entry["name"] for entry in message.get("reactions") or ()]


# --- which rows there are ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "error", "name"),
    [
        ("complete", None, "white_check_mark"),
        ("failed", {"type": "node_failed"}, "x"),
        ("failed", {"type": "rejected"}, "no_entry_sign"),
        ("aborted", None, "octagonal_sign"),
    ],
)
def test_a_run_has_one_row_that_is_replaced_when_it_ends(
    outcome: str, error: dict[str, str] | None, name: str
) -> None:
    """Its first commit and its last one write the row, under one key for the message and the flow."""
    first, last = began("1.1"), ended("1.1", outcome, error=error)
    assert first.key == last.key == f"mark:{HERE}:1.1:rollback"
    assert first.replace
    assert last.replace
    assert decode(first.payload)["name"] == "large_yellow_circle"
    assert decode(last.payload) == {"channel": HERE, "ts": "1.1", "name": name}


def test_nothing_is_written_between_nor_where_no_message_started_it() -> None:
    """A step in the middle of a run changes no mark; a thread that the bot began has none."""
    thread = {**THREAD, "messageTs": "1.1"}
    assert mark_rows(session(thread=thread), session(prompt(), thread=thread), BEGUN) == []
    assert mark_rows(session(seq=0), session(prompt()), BEGUN) == []


# --- what is sent ------------------------------------------------------------------------------------------


async def test_a_mark_takes_the_place_of_the_one_before(rig: Rig) -> None:
    """Two are added and one is taken away, also where the same row is written once more."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    rig.send()
    row = began(ts)
    await rig.put(row)
    await rig.settled(row.key)
    assert marks(rig) == ["large_yellow_circle"]
    for _ in range(2):
        await rig.put(ended(ts))
        await rig.settled(row.key)
        assert marks(rig) == ["white_check_mark"]
    assert (rig.calls("reactions.add"), rig.calls("reactions.remove")) == (2, 1)


async def test_a_lost_answer_and_a_crash_change_nothing_twice(rig: Rig) -> None:
    """What was done before the process died is done already when it is done again."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    rig.send()
    row = began(ts)
    await rig.put(row)
    await rig.settled(row.key)
    rig.workspace.faults.effect_then_fail("reactions.add", times=1)
    rig.workspace.faults.effect_then_fail("reactions.remove", times=1)
    await rig.put(ended(ts))
    await rig.settled(row.key)
    assert marks(rig) == ["white_check_mark"]


async def test_what_stood_before_is_taken_away_after_a_crash(rig: Rig) -> None:
    """Between the two calls it is recorded what is still to go."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    rig.send()
    row = began(ts)
    await rig.put(row)
    await rig.settled(row.key)
    rig.workspace.faults.slow("reactions.remove", 60.0)
    await rig.put(ended(ts))

    async def going() -> bool:
        found = await rig.row(row.key)
        return found.result is not None and "over" in decode(found.result)

    await rig.until(going)
    await rig.crash()
    rig.workspace.faults.methods.clear()
    rig.send()
    await rig.settled(row.key)
    assert marks(rig) == ["white_check_mark"]
    assert rig.calls("reactions.add") == 2


async def test_the_next_try_keeps_the_mark_until_it_is_over(rig: Rig) -> None:
    """Failed, tried again, completed: the cross stays meanwhile, and goes with the end."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    rig.send()
    row = ended(ts, "failed", error={"type": "node_failed"})
    shown = []
    for one in (row, began(ts), ended(ts)):
        await rig.put(one)
        await rig.settled(row.key)
        shown.append(marks(rig))
    assert shown == [["x"], ["x"], ["white_check_mark"]]
    assert (rig.calls("reactions.add"), rig.calls("reactions.remove")) == (2, 1)


async def test_a_message_that_is_gone_is_no_error(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody may delete the message: then there is nothing to mark, and nobody is told."""
    rig.send()
    with caplog.at_level(logging.WARNING):
        row = began("1.1")
        await rig.put(row)
        assert (await rig.settled(row.key))["state"] == "sent"
    assert caplog.records == []


async def test_without_the_scope_it_is_said_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """An app that may not react stops trying after one call, of whatever kind the reaction is."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    rig.workspace.faults.fail("reactions.add", times=10, error="missing_scope")
    rig.send()
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            await rig.put(reaction_row(f"reaction:{number}", HERE, ts, "eyes"))
            assert (await rig.settled(f"reaction:{number}"))["state"] == "sent"
        row = began(ts)
        await rig.put(row)
        await rig.settled(row.key)
    assert rig.calls("reactions.add") == 1
    assert [record.message for record in caplog.records if "reactions:write" in record.message] != []
    assert len(caplog.records) == 1


async def test_a_mark_is_dropped_where_others_need_the_calls(rig: Rig) -> None:
    """A mark waits for its turn, lets what people said go first, and is given up after a while."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    with patch.object(outbox_worker, "DROP_SECONDS", 0.05):
        rig.send(limits={"reactions.add": {"a_minute": 1}})
        await rig.put(reaction_row("reaction:1", HERE, ts, "eyes"))
        await rig.settled("reaction:1")
        row = began(ts)
        await rig.put(row)
        assert (await rig.settled(row.key)) == {"state": "sent", "dropped": True}
    assert marks(rig) == ["eyes"]


async def test_no_mark_is_begun_that_could_not_be_taken_away(rig: Rig) -> None:
    """Slack takes fewer removals than additions: where those are used up, only the mark of the end comes."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    await rig.client.reactions_add(channel=HERE, timestamp=ts, name="eyes")
    rig.send(limits={"reactions.remove": {"a_minute": 1}})
    await rig.client.reactions_remove(channel=HERE, timestamp=ts, name="eyes")
    row = began(ts)
    await rig.put(row)
    await rig.settled(row.key)
    assert marks(rig) == []
    await rig.put(ended(ts))
    await rig.settled(row.key)
    assert marks(rig) == ["white_check_mark"]
