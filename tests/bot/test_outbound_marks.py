"""The row that shows on the message that started a run how it stands: sent twice at most, and never in anybody's way."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from unittest.mock import patch

import pytest

from bot.intents.session_rows import mark_rows, reaction_row
from bot.outbound import outbox_worker
from bot.outbound.reactions import Reactions
from engine.flow.load import load_flow
from engine.journal import events as ev
from engine.journal.events import Event
from engine.journal.records import OutboxRow, PutOutbox
from engine.journal.state import State
from engine.language.codec import decode
from prompt_state.question_row import thread_key
from tests.bot.outbound_kit import ASK, Rig
from tests.bot.rendering_cases import T1, THREAD, prompt, session
from tests.support.workspace import Json

HERE = "C0LOCALOPS"
BEGUN = [ev.FlowPaused(seq=5, timestamp=T1, reason="waiting")]
ENDED = [ev.SessionEnd(seq=9, timestamp=T1, status="complete")]


def began(ts: str) -> PutOutbox:
    """The row of a run that waits, started by this message."""
    (row,) = mark_rows(
        session(seq=0), session(prompt(), thread={**THREAD, "channel": HERE, "messageTs": ts}), BEGUN
    )
    return row


def ended(ts: str, outcome: str = "complete", **fields: object) -> PutOutbox:
    """The row of the same run once it has ended."""
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
    """Before the calls it is recorded what they are about to change, and what may have been done is done again."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    rig.send()
    row = began(ts)
    await rig.put(row)
    await rig.settled(row.key)
    rig.workspace.faults.slow("reactions.remove", 60.0)
    await rig.put(ended(ts))

    async def going() -> bool:
        found = await rig.row(row.key)
        return rig.calls("reactions.remove") == 1 and found.result is not None

    await rig.until(going)
    await rig.crash()
    rig.workspace.faults.methods.clear()
    rig.send()
    await rig.settled(row.key)
    assert marks(rig) == ["white_check_mark"]
    assert rig.calls("reactions.add") == 3


@pytest.mark.parametrize("method", ["reactions.add", "reactions.remove"])
async def test_a_run_that_stands_as_before_has_its_mark_whatever_answer_was_lost(
    rig: Rig, method: str
) -> None:
    """A call was carried out and nobody knows, then the run is back where it was: its first mark stands there, and no other."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    rig.send(backoff=(3_600.0, 3_600.0))
    row = began(ts)
    await rig.put(row)
    await rig.settled(row.key)
    rig.workspace.faults.effect_then_fail(method, times=1)
    await rig.put(ended(ts))

    async def made() -> bool:
        return rig.calls(method) > (method == "reactions.add")

    await rig.until(made)
    await rig.crash()
    await rig.put(row)
    rig.send()
    await rig.settled(row.key)
    assert marks(rig) == ["large_yellow_circle"]


# --- several runs of one message ---------------------------------------------------------------------------

FAILS = """
flow: fails
nodes:
  - id: how
    type: ask
    with: {message: "How does it look?"}
  - id: broken
    type: http
    with: {url: "http://127.0.0.1:1/"}
"""


class Runs:
    """Runs that one message started, each with the row of its mark as its commits write it."""

    def __init__(self, rig: Rig, ts: str) -> None:
        self.rig = rig
        self.ts = ts

    async def start(self, text: str = ASK) -> str:
        """Start a run that asks something; its id."""
        key = thread_key(self.rig.workspace.team_id, HERE, self.ts)
        thread = {"channel": HERE, "threadTs": self.ts, "key": key, "messageTs": self.ts}
        flow = load_flow(text, "flow.yml")
        session_id = await self.rig.engine.start(flow, {}, actor=self.rig.actor("ana"), thread=thread)
        await self.marked(session_id, session(seq=0), BEGUN)
        return session_id

    async def end(self, session_id: str) -> None:
        """Answer it, and let it end."""
        await self.rig.shown(session_id)
        await self.rig.answer(session_id, "ana", text="fine")
        await self.over(session_id)

    async def over(self, session_id: str) -> None:
        """Wait for the end of a run."""
        await self.rig.engine.parked(session_id)
        await self.marked(session_id, session(prompt()), ENDED)

    async def marked(self, session_id: str, before: State, events: Sequence[Event]) -> None:
        """Send the row of a run as it is now."""
        (row,) = mark_rows(before, await self.rig.engine.state(session_id), events)
        await self.rig.put(row)
        await self.rig.settled(row.key)

    @property
    def marks(self) -> set[str]:
        """The reactions on the message."""
        return set(marks(self.rig))


@pytest.fixture
async def runs(rig: Rig) -> Runs:
    """The runs of one message."""
    ts = await rig.workspace.post("ana", "ops", "please")
    rig.send()
    return Runs(rig, ts)


async def test_the_next_try_keeps_the_mark_until_it_is_over(runs: Runs) -> None:
    """Failed, tried again, failed again: the cross stays meanwhile, and is the mark of the last try."""
    first = await runs.start(FAILS)
    await runs.end(first)
    assert runs.marks == {"x"}
    again = await runs.rig.engine.retry(first, actor=runs.rig.actor("ana"))
    state = await runs.rig.engine.state(again)
    await runs.marked(again, session(seq=0), BEGUN)
    assert runs.marks == {"x"}, state.phase
    await runs.over(again)
    assert runs.marks == {"x"}
    assert (runs.rig.calls("reactions.add"), runs.rig.calls("reactions.remove")) == (2, 1)


@pytest.mark.parametrize("other", [ASK.replace("checkin", "lookout"), ASK], ids=["two flows", "one flow"])
async def test_the_mark_of_a_run_stays_while_another_run_of_the_message_goes_on(
    runs: Runs, other: str
) -> None:
    """The first end takes nothing away that stands for the run beside it; the last one does."""
    one, two = await runs.start(), await runs.start(other)
    await runs.end(one)
    assert runs.marks == {"large_yellow_circle", "white_check_mark"}
    await runs.end(two)
    assert runs.marks == {"white_check_mark"}


async def test_a_mark_that_knows_its_own_flow_alone_is_noticed(runs: Runs) -> None:
    """A seeded fault: with the runs of the row's own flow only, the first end takes away the mark of the other."""
    whole = Reactions._runs

    async def blind(self: Reactions, row: OutboxRow, data: Json) -> list[tuple[bool, str]]:
        return [found for found in await whole(self, row, data) if found[0]]

    one = await runs.start()
    await runs.start(ASK.replace("checkin", "lookout"))
    with patch.object(Reactions, "_runs", blind):
        await runs.end(one)
    assert runs.marks == {"white_check_mark"}


async def test_runs_that_ended_in_two_ways_have_both_marks(runs: Runs) -> None:
    """One completed, one failed: the message says both, in whatever order they ended."""
    one, two = await runs.start(FAILS), await runs.start()
    await runs.end(one)
    await runs.end(two)
    assert runs.marks == {"white_check_mark", "x"}


async def test_a_run_that_begins_later_is_seen_on_a_message_that_has_a_mark(runs: Runs) -> None:
    """A second reaction to a message starts its flow once more: it is in progress, beside the end of the first."""
    await runs.end(await runs.start())
    again = await runs.start()
    assert runs.marks == {"white_check_mark", "large_yellow_circle"}
    await runs.end(again)
    assert runs.marks == {"white_check_mark"}


async def test_a_mark_that_finds_no_room_takes_that_of_the_one_it_replaces(runs: Runs) -> None:
    """Slack takes only so many reactions on a message: what has ended never stays marked as in progress."""
    one = await runs.start()
    runs.rig.workspace.faults.fail("reactions.add", times=1, error="too_many_reactions")
    await runs.end(one)
    assert runs.marks == {"white_check_mark"}


async def test_a_mark_that_finds_no_room_at_all_leaves_none(runs: Runs) -> None:
    """Rather no mark than one that says that a run continues which has ended."""
    one = await runs.start()
    runs.rig.workspace.faults.fail("reactions.add", times=2, error="too_many_emoji")
    await runs.end(one)
    assert runs.marks == set()


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
