"""What the outbox does when Slack, the network, the disk or the process fails: shown once, in order, never lost."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

from bot.intents.session_rows import note_row, root_row
from bot.intents.slots import SHOW
from bot.outbound.posts import Ledger, is_uncertain
from bot.rendering.notes import note
from bot.wire.client import AuthLost
from engine.decide.commands import Hold, Resume
from engine.journal.records import PutOutbox
from engine.language import timestamps
from engine.language.codec import decode, encode
from engine.language.errors import StorageBroken, StorageError, StorageFull
from engine.run.stored import utc_now
from tests.bot.outbound_kit import APPROVAL, ASK, Rig, buttons, stands_in
from tests.support.workspace import Json

NEVER = (3600.0,)
"""Look delays that no test lives long enough for."""


async def root(rig: Rig, channel: str = "ops") -> str:
    """The ts of a person's message under which notes can be posted."""
    return await rig.workspace.post("ana", channel, "hello")


def a_note(ts: str, text: str = "a note", name: str = "1", channel: str = "C0LOCALOPS") -> PutOutbox:
    """A note in that thread, in the thread's lane."""
    return note_row(f"note:{name}", f"T:{channel}:{ts}", channel, ts, text)


def copies(rig: Rig, key: str) -> list[Json]:
    """Every message that carries this key, or shows what has it."""
    return [message for message in rig.posts("") if stands_in(message, key) and not _is_disarmed(message)]


def _is_disarmed(message: Json) -> bool:
    return bool(message["metadata"]["event_type"] != "sayso_post")


# --- lost answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["drop_connection", "500"])
async def test_a_prompt_whose_answer_is_lost_is_there_once(rig: Rig, mode: str) -> None:
    """If the answer to a successful post is lost, the post is looked up and adopted, not repeated."""
    session_id = await rig.start(APPROVAL)
    row = await rig.row(f"card:{session_id}")
    rig.workspace.faults.effect_then_fail("chat.postMessage", times=2, mode=mode)  # type: ignore[arg-type]  # a str
    rig.send()
    prompt_id = await rig.shown(session_id)
    await rig.settled(row.key)
    (prompt,) = copies(rig, f"prompt:{prompt_id}")
    assert copies(rig, row.key) == [prompt]
    assert buttons(prompt) == ["Cancel", "Approve", "Reject"]
    shown = (await rig.engine.state(session_id)).prompts[prompt_id].shown
    assert shown is not None
    assert shown["ts"] == prompt["ts"]


async def test_a_card_that_is_found_shows_what_happened_since_it_was_posted(rig: Rig) -> None:
    """The card's post was not heard of, and its session continued: the card that is found shows the session as it is."""
    session_id = await rig.start(APPROVAL)
    key = f"card:{session_id}"
    rig.workspace.faults.effect_then_fail("chat.postMessage", times=1)
    rig.workspace.faults.ratelimit("chat.update", times=1, retry_after=0)
    outbound = rig.send(look_delays=(1.0, 1.1))
    await rig.workspace.wait_for(lambda: copies(rig, key))
    await rig.answer(session_id, "ben", value="reject")
    outbound.notify()
    await rig.settled(key)
    assert "Waiting" not in copies(rig, key)[0]["text"]
    assert len(copies(rig, key)) == 1


async def test_a_card_is_looked_for_although_it_was_refused_before_and_changed_meanwhile(rig: Rig) -> None:
    """Refused, then posted with its answer lost, then changed before anybody looked: the card stands once."""
    session_id = await rig.start(APPROVAL)
    row = await rig.row(f"card:{session_id}")
    rig.workspace.faults.ratelimit("chat.postMessage", times=1, retry_after=0)
    rig.workspace.faults.effect_then_fail("chat.postMessage", times=1, mode="500")
    outbound = rig.send(look_delays=(0.5, 0.6))
    await rig.workspace.wait_for(lambda: copies(rig, row.key))
    await rig.put(PutOutbox(row.key, row.lane, SHOW, row.payload, session_id, replace=True))
    outbound.notify()
    await rig.settled(row.key)
    await rig.shown(session_id)
    assert len(copies(rig, row.key)) == 1


async def test_a_lost_answer_is_not_looked_up_at_once(rig: Rig) -> None:
    """A message may appear late, so the first lookup waits, and nothing is posted again before the last lookup."""
    ts = await root(rig)
    rig.workspace.faults.fail("chat.postMessage", times=1, status=500)
    rig.send(look_delays=(0.3, 0.6))
    await rig.put(a_note(ts))
    await rig.workspace.wait_for(lambda: rig.calls("chat.postMessage"))
    attempted_at = (await rig.row("note:1")).attempted_at
    assert attempted_at is not None
    began = timestamps.from_text(attempted_at).timestamp()
    await rig.settled("note:1")
    looks = [call.at - began for call in rig.workspace.calls_to("conversations.replies")]
    again = rig.workspace.calls_to("chat.postMessage")[1].at - began
    assert looks[0] >= 0.3
    assert looks[1] >= 0.6
    assert again > looks[1]


async def test_a_clock_that_is_set_back_delays_no_second_look(rig: Rig) -> None:
    """The machine's clock goes back an hour while a lost answer is waited for: the looks come at their times."""
    ts = await root(rig)
    rig.workspace.faults.fail("chat.postMessage", times=1, status=500)
    rig.send(look_delays=(0.3, 0.6))
    await rig.put(a_note(ts))
    await rig.workspace.wait_for(lambda: rig.calls("chat.postMessage"))
    rig.ahead -= 3600
    assert (await rig.settled("note:1"))["state"] == "sent"
    assert len(copies(rig, "note:1")) == 1


async def test_a_root_whose_answer_is_lost_is_found_in_its_channel(rig: Rig) -> None:
    """A message that begins a thread is looked up in the channel's history, and what follows has its place."""
    rig.workspace.faults.effect_then_fail("chat.postMessage", times=1)
    rig.send()
    then = {"kind": "slack.rooted", "key": "rooted:1", "payload": {"text": "run x"}}
    await rig.put(root_row("root:1", "C0LOCALOPS", "Ana started *x*", then))
    await rig.settled("root:1")
    (message,) = copies(rig, "root:1")
    (item,) = [row for row in await rig.writer.peek(rig.store.inbox.rows) if row.key == "rooted:1"]
    assert item.kind == "slack.rooted"
    assert decode(item.payload) == {
        "text": "run x",
        "posted": {"channel": "C0LOCALOPS", "ts": message["ts"]},
    }
    assert rig.calls("conversations.history") >= 1


async def test_a_copy_that_appears_late_is_disarmed(rig: Rig) -> None:
    """If a message appears twice after all, the older one counts, and the other can be neither pressed nor found."""
    rig.workspace.faults.effect_then_fail("chat.postMessage", times=2)
    rig.workspace.faults.set_scopes(["chat:write"])
    posts = 0

    async def before(method: str) -> None:
        nonlocal posts
        posts += method == "attempt"
        if posts == 3:
            rig.workspace.faults.set_scopes(None)

    rig.writer.before = before
    session_id = await rig.start(ASK)
    rig.send(at_once=1)
    prompt_id = await rig.shown(session_id)
    await rig.settled(f"card:{session_id}")
    assert len(copies(rig, f"card:{session_id}")) == 1
    assert len(copies(rig, f"prompt:{prompt_id}")) == 1
    disarmed = [message for message in rig.posts("use the other copy") if _is_disarmed(message)]
    assert disarmed
    assert all(buttons(message) == [] for message in disarmed)
    first = copies(rig, f"card:{session_id}")[0]
    assert all(float(first["ts"]) < float(message["ts"]) for message in disarmed)


async def test_without_the_right_to_look_a_message_may_appear_twice_and_the_log_says_so_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Where threads may not be read, a lost post is posted again after both waits; one line in the log says it."""
    ts = await root(rig)
    rig.workspace.faults.set_scopes(["chat:write"])
    rig.workspace.faults.fail("chat.postMessage", times=2, status=500)
    rig.send()
    with caplog.at_level(logging.ERROR, "sayso.outbound"):
        await rig.put(a_note(ts), a_note(ts, name="2"))
        await rig.settled("note:2")
    assert len(copies(rig, "note:1")) == len(copies(rig, "note:2")) == 1
    assert caplog.text.count("cannot be looked up") == 1


# --- crashes -----------------------------------------------------------------------------------------------


async def test_a_crash_between_the_post_and_its_record_adopts_the_post(rig: Rig) -> None:
    """The process died before it knew: the next one finds the message at once and does not post again."""
    session_id = await rig.start(APPROVAL)
    key = f"prompt:{next(iter((await rig.engine.state(session_id)).prompts))}"
    # The question waits for what becomes of the card, so each of the two has a life of its own to be lost in.
    for posted in (f"card:{session_id}", key):
        rig.workspace.faults.effect_then_fail("chat.postMessage")
        rig.send(look_delays=NEVER)
        await rig.workspace.wait_for(lambda posted=posted: copies(rig, posted))
        await rig.crash()
    posts = rig.calls("chat.postMessage")
    rig.send(look_delays=NEVER)
    (prompt,) = copies(rig, key)
    assert (await rig.settled(key))["ts"] == prompt["ts"]
    await rig.settled(f"card:{session_id}")
    assert rig.calls("chat.postMessage") == posts


async def test_a_crash_before_the_request_posts_once(rig: Rig) -> None:
    """The attempt was recorded and nothing was sent: the next process looks, waits its time, and posts."""
    ts = await root(rig)
    await rig.put(a_note(ts))
    row = await rig.row("note:1")
    await rig.writer.peek(rig.store.outbox.attempt, row.id, 0, utc_now())
    rig.send()
    await rig.settled("note:1")
    assert len(copies(rig, "note:1")) == 1
    assert rig.calls("conversations.replies") >= 1


async def test_a_card_that_another_process_records_keeps_nothing_back(rig: Rig) -> None:
    """A card waits to be looked up, and the process that was held while it posted it records it: the question follows."""
    session_id = await rig.start(APPROVAL)
    key = f"card:{session_id}"
    rig.workspace.faults.effect_then_fail("chat.postMessage", times=1)

    async def the_other_process(method: str) -> None:
        if method != "due":
            return
        row = await rig.row(key)
        if row.state == "pending" and row.attempts:
            (card,) = copies(rig, key)
            result = encode({**decode(row.result or b"{}"), "channel": "C0LOCALOPS", "ts": card["ts"]})
            finish = rig.store.outbox.finish
            await rig.writer.peek(finish, row.id, row.rev, now=rig.now(), state="sent", result=result)

    rig.writer.before = the_other_process
    rig.send()
    prompt_id = await rig.shown(session_id)
    assert len(copies(rig, f"prompt:{prompt_id}")) == len(copies(rig, key)) == 1


async def test_two_copies_after_a_crash_leave_one_that_counts(rig: Rig) -> None:
    """Two copies are in the thread: the oldest is adopted and the other one says that it does nothing."""
    ts = await root(rig)
    await rig.put(a_note(ts))
    row = await rig.row("note:1")
    made = note("a note", "note:1")
    for _ in range(2):
        await rig.client.chat_postMessage(
            channel="C0LOCALOPS", thread_ts=ts, text=made.text, blocks=made.blocks, metadata=made.metadata
        )
    first, second = copies(rig, "note:1")
    await rig.writer.peek(rig.store.outbox.attempt, row.id, 0, utc_now())
    rig.send(look_delays=NEVER)
    assert (await rig.settled("note:1"))["ts"] == first["ts"]
    (duplicate,) = rig.posts("use the other copy")
    assert duplicate["ts"] == second["ts"]


async def test_a_copy_of_somebody_else_is_not_adopted(rig: Rig) -> None:
    """A message of another app that carries our key is not ours, whatever its metadata says."""
    ts = await root(rig)
    await rig.put(a_note(ts))
    made = note("a note", "note:1")
    await rig.client.chat_postMessage(
        channel="C0LOCALOPS", thread_ts=ts, text=made.text, metadata=made.metadata
    )
    (theirs,) = copies(rig, "note:1")
    rig.workspace.state.message("C0LOCALOPS", theirs["ts"])["user"] = "U0OTHERBOT"  # type: ignore[index]  # is there
    await rig.writer.peek(rig.store.outbox.attempt, (await rig.row("note:1")).id, 0, utc_now())
    rig.send()
    assert (await rig.settled("note:1"))["ts"] != theirs["ts"]


async def test_a_record_that_cannot_be_written_loses_nothing(rig: Rig) -> None:
    """The disk was full when the result was to be recorded: the message is found again, and is there once."""
    ts = await root(rig)
    failed = False

    async def before(method: str) -> None:
        nonlocal failed
        if method == "finish" and not failed:
            failed = True
            raise StorageFull("no space is left")

    rig.writer.before = before
    rig.send()
    await rig.put(a_note(ts))
    assert (await rig.settled("note:1"))["state"] == "sent"
    assert failed
    assert len(copies(rig, "note:1")) == 1


# --- refusals that pass ------------------------------------------------------------------------------------


async def test_a_rate_limit_is_waited_for_and_keeps_the_order(rig: Rig) -> None:
    """After 429 the same message goes first, not before its time, and needs no looking up."""
    ts = await root(rig)
    rig.workspace.faults.ratelimit("chat.postMessage", times=1, retry_after=1)
    rig.send()
    await rig.put(a_note(ts, "one", "1"), a_note(ts, "two", "2"))
    await rig.settled("note:2")
    limited, first, _ = rig.workspace.calls_to("chat.postMessage")
    assert first.at - limited.at >= 1.0
    assert [message["text"] for message in rig.posts("")] == ["one", "two"]
    assert rig.calls("conversations.replies") == 0


async def test_a_rate_limit_in_one_channel_holds_back_no_other(rig: Rig) -> None:
    """A hundred threads of a limited channel wait without a call each; a message for another channel goes out."""
    ts, other = await root(rig), await root(rig, "incidents")
    rig.workspace.faults.ratelimit("chat.postMessage", times=8, retry_after=600)
    rig.send()
    many = [note_row(f"note:{n}", f"lane:{n}", "C0LOCALOPS", ts, "late") for n in range(130)]
    await rig.put(*many, a_note(other, "urgent", "urgent", "C0LOCALINC"))
    assert (await rig.settled("note:urgent"))["state"] == "sent"
    assert rig.calls("chat.postMessage") == 9


async def test_errors_that_pass_are_tried_again_with_growing_waits(rig: Rig) -> None:
    """An edit that fails at Slack's end is repeated until it succeeds; nothing needs to be looked up for it."""
    rig.send()
    session_id = await rig.start(ASK)
    prompt_id = await rig.shown(session_id)
    await rig.settled(f"card:{session_id}")
    rig.workspace.faults.fail("chat.update", times=4, status=503)
    await rig.answer(session_id, "ana", text="fine")
    assert (await rig.settled(f"prompt:{prompt_id}"))["state"] == "sent"
    await rig.settled(f"card:{session_id}")
    assert rig.calls("conversations.replies") == 0
    assert "*Answered* by" in copies(rig, f"prompt:{prompt_id}")[0]["text"]


async def lost_edit(rig: Rig) -> tuple[str, str]:
    """A run's card before and after a pause that was resumed, where Slack has made the edits between and nobody knows."""
    rig.send(backoff=(3_600.0, 3_600.0))
    session_id = await rig.start(APPROVAL)
    await rig.shown(session_id)
    key = f"card:{session_id}"
    await rig.settled(key)
    waiting = str(copies(rig, key)[0]["text"])
    rig.workspace.faults.effect_then_fail("chat.update", times=10)
    await rig.engine.apply(session_id, Hold(rig.actor("ana")))

    async def edited() -> bool:
        return bool(copies(rig, key)[0]["text"] != waiting)

    await rig.until(edited)
    await rig.crash()
    rig.workspace.faults.methods.clear()
    await rig.engine.apply(session_id, Resume("resume", rig.actor("ana"), "resume"))
    rig.send()
    await rig.settled(key)
    return waiting, str(copies(rig, key)[0]["text"])


async def test_a_card_is_as_the_run_stands_whatever_answer_to_an_edit_was_lost(rig: Rig) -> None:
    """An edit was made and nobody knows, then the run is back where it was: so is its card, and its question's message."""
    before, after = await lost_edit(rig)
    assert after == before


async def test_a_record_that_an_edit_leaves_as_it_was_is_noticed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seeded fault: the look that was recorded before the edit counts on, and the card says *Paused* for ever."""

    async def nothing(self: Ledger, row: object) -> None:
        pass

    monkeypatch.setattr(Ledger, "unknown_look", nothing)
    before, after = await lost_edit(rig)
    assert after != before


async def test_without_a_connection_rows_stay_and_are_sent_later(rig: Rig) -> None:
    """Nobody answers at Slack's address: nothing was sent, so nothing is looked up once there is a connection."""
    ts = await root(rig)
    working = rig.client.base_url
    rig.client.base_url = "http://127.0.0.1:1/api/"
    rig.send(backoff=(3_600.0, 3_600.0))  # no second try is under way when the process ends
    await rig.put(a_note(ts))

    async def noted() -> bool:
        row = await rig.row("note:1")
        return row.attempts == 1 and not is_uncertain(row)

    await rig.until(noted)
    await rig.crash()
    rig.client.base_url = working
    rig.later(3_600)
    rig.send()
    await rig.settled("note:1")
    assert len(copies(rig, "note:1")) == 1
    assert rig.calls("conversations.replies") == 0


async def test_blocks_that_slack_refuses_are_replaced_by_plain_text(rig: Rig) -> None:
    """Better plain than not at all: the same key is posted without blocks."""
    ts = await root(rig)
    rig.workspace.faults.fail("chat.postMessage", times=1, error="invalid_blocks")
    rig.send()
    await rig.put(a_note(ts, "plain words"))
    await rig.settled("note:1")
    (message,) = copies(rig, "note:1")
    assert message["text"] == "plain words"
    assert not message.get("blocks")


# --- refusals that stay ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["channel_not_found", "not_in_channel", "is_archived"])
async def test_what_slack_refuses_for_good_is_not_tried_again(rig: Rig, reason: str) -> None:
    """The row fails with Slack's reason, and what is behind it in its lane continues."""
    ts = await root(rig)
    rig.workspace.faults.fail("chat.postMessage", times=1, error=reason)
    rig.send()
    await rig.put(a_note(ts), a_note(ts, name="2"))
    assert (await rig.settled("note:1"))["error"] == reason
    assert (await rig.settled("note:2"))["state"] == "sent"
    assert rig.calls("chat.postMessage") == 2


async def test_a_token_that_is_revoked_stops_everything_and_loses_nothing(rig: Rig) -> None:
    """Sending ends with `AuthLost`, so that the process can; with a token that works the row is sent, once."""
    ts = await root(rig)
    rig.workspace.faults.reject_token("token_revoked")
    outbound = rig.send()
    await rig.put(a_note(ts))
    assert rig.sending is not None
    with pytest.raises(AuthLost, match="token_revoked"):
        await asyncio.wait_for(rig.sending, 5)
    assert outbound.failure.done()
    assert (await rig.row("note:1")).state == "pending"
    rig.workspace.faults.accept_token()
    rig.send()
    await rig.settled("note:1")
    assert len(copies(rig, "note:1")) == 1


async def test_a_broken_disk_ends_sending(rig: Rig) -> None:
    """Memory cannot be trusted after a failed write to disk: sending ends and says so."""

    async def before(method: str) -> None:
        raise StorageBroken("fsync failed")

    rig.writer.before = before
    rig.send()
    assert rig.sending is not None
    with pytest.raises(StorageBroken):
        await asyncio.wait_for(rig.sending, 5)
    rig.writer.before = None


async def test_a_store_that_is_busy_for_a_moment_is_asked_again(rig: Rig) -> None:
    """The outbox could not be read once: nothing ends, and what is there is sent a little later."""
    ts = await root(rig)
    failed = False

    async def before(method: str) -> None:
        nonlocal failed
        if method == "due" and not failed:
            failed = True
            raise StorageError("the database is busy")

    rig.writer.before = before
    rig.send()
    await rig.put(a_note(ts))
    assert (await rig.settled("note:1"))["state"] == "sent"
    assert failed


async def test_a_row_whose_session_cannot_be_read_fails_alone(rig: Rig) -> None:
    """A session that is gone takes its rows with it, and nobody else's."""
    ts = await root(rig)
    rig.send()
    lost = PutOutbox("end:gone", f"T:C0LOCALOPS:{ts}", "note", b'{"sessionId":"session-gone","seq":3}', None)
    await rig.put(lost, a_note(ts))
    assert (await rig.settled("end:gone"))["error"] == "session_unknown"
    assert (await rig.settled("note:1"))["state"] == "sent"


# --- lanes -------------------------------------------------------------------------------------------------


async def test_lanes_go_side_by_side_and_not_too_many_at_once(rig: Rig) -> None:
    """Eight threads are served at the same time, and the ninth when one of them is done."""
    ts = await root(rig)
    rig.workspace.faults.slow("chat.postMessage", 0.3)
    await rig.put(*(note_row(f"note:{n}", f"lane:{n}", "C0LOCALOPS", ts, "hi") for n in range(9)))
    rig.send()
    await rig.workspace.wait_for(lambda: rig.calls("chat.postMessage") >= 8)
    assert rig.posts("hi") == []
    assert rig.calls("chat.postMessage") == 8
    await rig.settled("note:8")


async def test_one_lane_has_one_request_out_at_a_time(rig: Rig) -> None:
    """In a thread the next message is not sent before the one before it is recorded."""
    ts = await root(rig)
    rig.workspace.faults.slow("chat.postMessage", 0.05)
    await rig.put(*(a_note(ts, f"number {n}", str(n)) for n in range(4)))
    rig.send()
    await rig.settled("note:3")
    times = [call.at for call in rig.workspace.calls_to("chat.postMessage")]
    assert all(later - earlier >= 0.05 for earlier, later in pairwise(times))
    assert [message["text"] for message in rig.posts("number")] == [f"number {n}" for n in range(4)]


async def test_stopping_waits_for_the_answers_that_are_out(rig: Rig) -> None:
    """A request that is out when sending stops is answered and recorded; nothing new begins."""
    ts = await root(rig)
    rig.workspace.faults.slow("chat.postMessage", 0.2)
    outbound = rig.send()
    await rig.put(a_note(ts), a_note(ts, name="2"))
    await rig.workspace.wait_for(lambda: rig.calls("chat.postMessage") == 1)
    outbound.stop()
    assert rig.sending is not None
    await asyncio.wait_for(rig.sending, 5)
    assert (await rig.row("note:1")).state == "sent"
    assert ((await rig.row("note:2")).state, (await rig.row("note:2")).attempts) == ("pending", 0)
