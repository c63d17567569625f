"""The sender's fence: a sender that froze between storing and sending, while another one may have posted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bot.outbound.calls import Calls, Modals, OpenView, Place, Posted
from bot.outbound.posts import Poster
from bot.rendering.blocks import Rendered
from bot.rendering.notes import duplicate, note
from bot.wire.client import in_turn, plain_session
from engine.language.errors import FenceLost
from engine.nodes.runtime.effects import FREE, under
from engine.run.stored import utc_now
from engine.storage.fence import WorkPermit
from tests.bot.outbound_kit import ASK, Rig, key_of
from tests.bot.test_outbound_faults import a_note, copies, root
from tests.support.fencing import Lasting, Lease
from tests.support.workspace import Json

HERE = "C0LOCALOPS"


def leased(rig: Rig) -> Lease:
    """The lease of the sender's process."""
    lease = Lease()
    rig.store.generation, rig.store.holds = lease.generation, lease.holds  # type: ignore[method-assign]
    return lease


def once_stored(rig: Rig, then: Callable[[], object]) -> asyncio.Event:
    """Do this, once, when the first attempt is stored and before its request."""
    real, happened = rig.store.outbox.attempt, asyncio.Event()
    loop = asyncio.get_running_loop()

    def outbox_attempt(row_id: int, attempts: int, now: str) -> bool:
        made = real(row_id, attempts, now)
        rig.store.outbox.attempt = real  # type: ignore[method-assign]
        then()
        loop.call_soon_threadsafe(happened.set)
        return made

    rig.store.outbox.attempt = outbox_attempt  # type: ignore[method-assign]
    return happened


async def frozen_after_its_attempt(rig: Rig) -> int:
    """It freezes between `attempt stored` and the request, and its sign of life runs first when it wakes: how often it has
    posted by the time that it looks."""
    lease = leased(rig)
    ts = await root(rig)
    await rig.put(a_note(ts))
    stored = once_stored(rig, lease.gap)
    rig.send()
    await stored.wait()
    await rig.until(lambda: _looked(rig))
    return rig.calls("chat.postMessage")


async def _looked(rig: Rig) -> bool:
    return rig.calls("conversations.replies") > 0 or (await rig.row("note:1")).state == "sent"


async def test_a_sender_that_stood_still_after_its_attempt_looks_before_it_posts(rig: Rig) -> None:
    """Another process may have posted meanwhile: nothing is sent for what was stored before the gap, and one message stands."""
    assert await frozen_after_its_attempt(rig) == 0
    assert (await rig.settled("note:1"))["state"] == "sent"
    assert len(copies(rig, "note:1")) == 1


async def test_a_sender_without_a_check_is_noticed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would post at once."""

    async def unasked(self: WorkPermit) -> None:
        return

    monkeypatch.setattr(WorkPermit, "ask", unasked)
    assert await frozen_after_its_attempt(rig) == 1


async def post(rig: Rig, ts: str) -> Posted:
    """Another process posts the same row."""
    made = note("a note", "note:1")
    answer = await rig.client.chat_postMessage(
        channel=HERE, thread_ts=ts, text=made.text, blocks=made.blocks, metadata=made.metadata
    )
    return Posted(HERE, answer["ts"])


async def test_a_sender_that_stood_still_inside_its_attempt_adopts_what_another_one_posted(rig: Rig) -> None:
    """The other one has made an attempt since the row was read, and posted: this one sends nothing, and finds that."""
    ts = await root(rig)
    await rig.put(a_note(ts))
    other = rig.store.another()  # type: ignore[attr-defined]  # a `MemoryStore`
    real = rig.store.outbox.attempt
    posted: list[Posted] = []

    async def before(method: str) -> None:
        if method == "attempt" and not posted:
            row = await rig.row("note:1")
            assert other.outbox.attempt(row.id, row.attempts, utc_now())
            with under(FREE):
                posted.append(await post(rig, ts))

    rig.writer.before = before
    rig.send()
    assert (await rig.settled("note:1"))["ts"] == posted[0].ts
    assert rig.calls("chat.postMessage") == len(copies(rig, "note:1")) == 1
    assert rig.store.outbox.attempt == real
    other.close()


# --- what comes back too late -----------------------------------------------------------------------------------


async def late(
    rig: Rig,
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: bool = False,
    after: bool = False,
    disarmed: bool = False,
) -> tuple[list[Json], list[Json]]:
    """Our post returns when we may have been taken for dead. Another process has posted the same `before` or `after` it, and
    makes its own harmless where it is `disarmed`: the live copies, and the harmless ones."""
    lease = leased(rig)
    ts = await root(rig)
    await rig.put(a_note(ts))
    real, ours = Calls.post, list[Posted]()
    over = asyncio.Event()

    async def slow(self: Calls, place: Place, message: Rendered, **named: Any) -> Posted:
        with under(FREE):
            if before:
                await post(rig, ts)
            ours.append(await real(self, place, message, **named))
            if after:
                await post(rig, ts)
        lease.freeze()
        return ours[0]

    looks, find = 0, Calls.find

    async def found(self: Calls, *args: Any) -> list[Posted]:
        nonlocal looks
        copies = await find(self, *args)
        looks += 1
        if disarmed and looks == 1:
            await self.edit(copies[-1], duplicate("note:1"), metadata=True)
        return copies

    alone = Poster.alone

    async def noted(self: Poster, *args: Any) -> None:
        try:
            await alone(self, *args)
        finally:
            over.set()

    monkeypatch.setattr(Calls, "post", slow)
    monkeypatch.setattr(Calls, "find", found)
    monkeypatch.setattr(Poster, "alone", noted)
    rig.send()
    await over.wait()
    live = copies(rig, "note:1")
    return [one for one in live if one["ts"] == ours[0].ts], rig.posts("use the other copy")


@pytest.mark.parametrize("theirs", ["before", "after"])
async def test_what_returns_too_late_is_made_harmless_where_another_one_has_posted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    """Whichever is older: the process that has the row now has recorded its own."""
    ours, harmless = await late(rig, monkeypatch, **{theirs: True})
    assert (len(ours), len(harmless)) == (0, 1)
    assert len(copies(rig, "note:1")) == 1
    assert [key_of(message) for message in harmless] == ["note:1"]


async def test_what_returns_too_late_stands_where_the_other_one_has_given_way(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one posted later, saw ours and made its own harmless: never are both."""
    ours, harmless = await late(rig, monkeypatch, after=True, disarmed=True)
    assert (len(ours), len(harmless)) == (1, 1)


async def test_what_returns_too_late_stands_where_nobody_else_has_posted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was away for a moment."""
    ours, harmless = await late(rig, monkeypatch)
    assert (len(ours), len(harmless)) == (1, 0)
    assert (await rig.settled("note:1"))["ts"] == ours[0]["ts"]


async def test_a_late_post_without_a_look_is_noticed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both copies would be live."""
    monkeypatch.setattr("bot.outbound.posts.permitted", lambda: True)
    ours, harmless = await late(rig, monkeypatch, after=True)
    assert (len(ours), len(harmless)) == (1, 0)


# --- everything that shows something ----------------------------------------------------------------------------


async def _put(calls: Calls) -> None:
    async with plain_session(calls._client, 1.0) as session, session.post(calls._client.base_url):
        raise AssertionError("sent")


WHERE, WORDS, VIEW = Posted(HERE, "1.0"), Rendered("words", []), {"type": "home", "blocks": []}
SHOWN: dict[str, Callable[[Calls], Awaitable[Any]]] = {
    "post": lambda calls: calls.post(Place(HERE), WORDS),
    "edit": lambda calls: calls.edit(WHERE, WORDS),
    "whisper": lambda calls: calls.whisper(Place(HERE), "U0ANA", WORDS),
    "delete": lambda calls: calls.delete(WHERE),
    "set_status": lambda calls: calls.set_status(Place(HERE, "1.0"), "active", "t", "U0ANA"),
    "suggest": lambda calls: calls.suggest(HERE, []),
    "react": lambda calls: calls.react(WHERE, "eyes"),
    "respond": lambda calls: calls.respond(f"{calls._client.base_url}respond/1", "words"),
    "replace": lambda calls: calls.replace(f"{calls._client.base_url}respond/1", WHERE, WORDS),
    "open": lambda calls: Modals(calls._client).open("trigger", VIEW),
    "update": lambda calls: Modals(calls._client).update(OpenView("V1", "hash"), VIEW),
    "publish": lambda calls: Modals(calls._client).publish("U0ANA", VIEW),
    "say": lambda calls: Modals(calls._client).whisper(HERE, "U0ANA", None, "words"),
    "upload": lambda calls: _put(calls),
    "share": lambda calls: calls._client.files_completeUploadExternal(files=[{"id": "F1", "title": "t"}]),
}


@pytest.mark.parametrize("name", SHOWN)
async def test_nothing_is_shown_by_lost_work(rig: Rig, name: str) -> None:
    """Every call of Slack asks right before its request."""
    calls = Calls(rig.client, rig.workspace.bot_user_id)
    before = len(rig.workspace.calls)
    with under(Lasting(0)), pytest.raises(FenceLost):
        await SHOWN[name](calls)
    assert len(rig.workspace.calls) == before


async def test_a_call_that_was_refused_for_its_rate_asks_again(rig: Rig) -> None:
    """It is made again in its next turn, by which the work may be lost."""
    rig.workspace.faults.ratelimit("reactions.add", times=1, retry_after=0)
    with under(Lasting(1)), pytest.raises(FenceLost):
        await rig.client.reactions_add(channel=HERE, timestamp="1.0", name="eyes")
    assert rig.calls("reactions.add") == 1


async def test_a_turn_whose_work_is_lost_is_no_silence_of_slack(rig: Rig) -> None:
    """No request was made, so nobody waits for an answer: other calls are made at once."""

    async def never() -> None:
        raise AssertionError("called")

    for _ in range(10):
        with under(Lasting(0)), pytest.raises(FenceLost):
            await in_turn(rig.budget, "chat.update", never)
    assert not rig.budget._away()


async def test_a_question_that_was_asked_before_the_gap_is_shown_once(rig: Rig) -> None:
    """A whole session: its card with the question stands once, although the process froze before it was posted."""
    lease = leased(rig)
    session_id = await rig.start(ASK)
    stood_still = once_stored(rig, lease.gap)
    rig.send()
    prompt_id = await rig.shown(session_id)
    assert stood_still.is_set()
    assert len(copies(rig, f"prompt:{prompt_id}")) == 1
