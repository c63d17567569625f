"""A message that cannot be handled blocks no other: it becomes a dead letter, its thread is told, and later messages are handled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from bot.gate.requests import NOTED, REQUEST, ROOTED
from bot.inbound import decisions
from bot.inbound.decisions import PAGE, VIEW
from bot.start.schedules import WANTED, WANTED_ROOTED
from bot.terminal.lists import letter_json
from bot.wire.client import Unknown
from engine.journal.records import DEAD, Consumed, InboxItem, InboxRow, Row
from engine.language.codec import encode
from engine.language.errors import Corrupt, KeyMissing, StorageFull
from engine.run import failures
from engine.run.failures import MOST_FAILURES
from prompt_state.question_row import thread_key
from tests.support.inprocess import Town
from tests.support.simulated import in_town

TALK = """
flow: talk
nodes:
  - {id: a, type: ask, with: {message: "Say it", who: [channel]}}
  - {id: b, type: message, with: {text: "heard {{ nodes.a.text }}"}}
"""
KINDS = (
    "request",
    decisions.MESSAGE,
    decisions.CLICK,
    decisions.SLASH,
    decisions.ROOTED,
    decisions.OVERHEARD,
    decisions.REACTION,
    decisions.CHANNEL,
    decisions.DELETED,
    decisions.EDITED,
    decisions.SHARED,
    decisions.TAB,
    decisions.STOPPED,
    decisions.WEB,
    VIEW,
    PAGE,
    WANTED,
    WANTED_ROOTED,
    REQUEST,
    ROOTED,
    NOTED,
)
SECONDS = 30.0
"""Within which the rows behind one that fails are handled."""


def broken(place: Town, kind: str, error: Exception, times: int = 1_000_000) -> list[str]:
    """Let the handler of one kind fail so many times for rows whose key begins with `bad`; the keys, at each try."""
    handlers: dict[str, Callable[[InboxRow], Awaitable[bool]]] = place.bot.service._handlers
    handler, tried = handlers[kind], []

    async def handle(row: InboxRow) -> bool:
        if not row.key.startswith("bad"):
            return await handler(row)
        tried.append(row.key)
        if len(tried) <= times:
            raise error
        await place.bot.service.consume(row, "applied")
        return True

    handlers[kind] = handle
    return tried


async def put(place: Town, kind: str, key: str, root: str) -> None:
    """A row of this kind in the lane of a thread."""
    team, channel = place.core.state.team_id, place.channel().id
    data: dict[str, Any] = {"team": team, "channel": channel, "user": place.user("ana").id, "ts": root}
    item = InboxItem(key, kind, encode(data), thread_key=thread_key(team, channel, root))
    await place.engine.writer.ingest([item], place.bot.machine.now())
    place.bot.service.notify()


def told(place: Town, root: str) -> list[str]:
    """What the thread says about what could not be handled."""
    return [message["text"] for message in place.thread(root) if "couldn't process" in message["text"]]


@in_town({"talk": TALK})
async def test_every_kind_of_row_is_known_here(place: Town) -> None:
    """The kinds for which a fault is seeded below are all those that the bot handles."""
    assert set(place.bot.service._handlers) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
@in_town({"talk": TALK})
async def test_a_row_that_fails_is_set_aside_and_the_next_one_passes(
    place: Town, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault in a handler: a few tries, a dead letter, the thread is told once, the reply behind it is heard in time,
    and the log has one line for each change."""
    root = await place.start("ana", "talk")
    tried = broken(place, kind, ValueError("a fault"))
    begin = place.seconds()
    # As old as the thread itself, and so before the reply.
    place.bot.service._order = lambda row: float(row.id)
    await put(place, kind, "bad", root)
    place.say("ana", "go on", root)
    await place.until(lambda: "heard go on" in str(place.thread(root)))
    assert place.seconds() - begin < SECONDS
    await place.settle()
    (row,) = place.store.inbox.dead_letters()
    assert (row.key, row.outcome, len(tried)) == ("bad", DEAD, MOST_FAILURES)
    assert letter_json(row)["error"] == "ValueError"
    assert len(told(place, root)) == 1
    lines = [record.message for record in caplog.records if "inbox row bad" in record.message]
    assert lines == [
        "inbox row bad failed and is retried",
        f"inbox row bad failed {MOST_FAILURES} times and is now a dead letter (sayso inbox list): ValueError",
    ]


@in_town({"talk": TALK})
async def test_without_dead_letters_a_thread_is_held_up(place: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeded fault: were nothing ever set aside, the reply behind a row that fails would not be heard in time."""
    monkeypatch.setattr(failures, "MOST_FAILURES", 1_000_000)
    root = await place.start("ana", "talk")
    broken(place, decisions.MESSAGE, ValueError("a fault"))
    place.bot.service._order = lambda row: float(row.id)
    await put(place, decisions.MESSAGE, "bad:x:y:1.0", root)
    place.say("ana", "go on", root)
    with pytest.raises(TimeoutError):
        await place.until(lambda: "heard go on" in str(place.thread(root)), most=SECONDS)


@in_town({"talk": TALK})
async def test_what_is_busy_elsewhere_does_not_hurry_a_row_that_fails(place: Town) -> None:
    """A row that failed is tried again after its wait, however often something else happens meanwhile."""
    root = await place.start("ana", "talk")
    tried = broken(place, decisions.MESSAGE, ValueError("a fault"))
    await put(place, decisions.MESSAGE, "bad:x:y:1.0", root)
    await place.until(lambda: tried)
    for _ in range(10):
        place.bot.service.notify()
    await place.until(lambda: len(tried) > 1)
    assert len(tried) == 2


@pytest.mark.parametrize("error", [Unknown("no answer"), TimeoutError(), ConnectionResetError()])
@in_town({"talk": TALK})
async def test_a_slack_that_is_away_is_waited_out(place: Town, error: Exception) -> None:
    """A handler that cannot reach Slack is not a fault of the row: it is tried for as long as that takes."""
    root = await place.start("ana", "talk")
    handlers = place.bot.service._handlers
    tried = broken(place, decisions.CLICK, error, times=20)
    handlers[decisions.CLICK] = place.bot._after_catch_up(handlers[decisions.CLICK])
    await put(place, decisions.CLICK, "bad", root)
    await place.until(lambda: len(tried) > 20, most=300)
    await place.settle()
    assert outcome(place, "bad") == "applied"


@in_town({"talk": TALK})
async def test_a_full_disk_is_waited_out(place: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store takes no writes nothing is a row's fault; with room again the row is handled."""
    root = await place.start("ana", "talk")
    tried = broken(place, decisions.CLICK, StorageFull("full"), times=20)
    consume = place.store.consume

    def full(consumed: Sequence[Consumed], now: str, rows: Sequence[Row] = ()) -> None:
        if len(tried) <= 20:
            raise StorageFull("full")
        consume(consumed, now, rows)

    monkeypatch.setattr(place.store, "consume", full)
    await put(place, decisions.CLICK, "bad", root)
    await place.until(lambda: len(tried) > 20, most=300)
    await place.settle()
    assert outcome(place, "bad") == "applied"


@in_town({"talk": TALK})
async def test_an_error_of_the_store_that_is_the_rows_own_is_counted(place: Town) -> None:
    """A row that names damaged records fails each time, while the store takes everything else: it is set aside."""
    root = await place.start("ana", "talk")
    broken(place, decisions.CLICK, Corrupt("damaged"))
    await put(place, decisions.CLICK, "bad", root)
    await place.settle()
    assert outcome(place, "bad") == DEAD


@pytest.mark.parametrize("about", ["a reply", "a press"])
@in_town({"talk": TALK})
async def test_damage_that_is_found_while_the_bot_runs_sets_the_session_aside_and_not_the_row(
    place: Town, about: str
) -> None:
    """A journal was changed after the start: whatever looks at the session first has it set aside, and loses no row."""
    root = await place.start("ana", "talk")
    place.damage_a_journal()
    if about == "a reply":
        place.say("ana", "go on", root)
    else:
        await place.press("ana", *place.find(root, "sayso:cancel"))
    await place.until(lambda: "is on hold" in str(place.thread(root)))
    await place.settle()
    assert place.store.inbox.dead_letters() == []
    (head,) = place.store.sessions.heads(limit=None)
    assert head.quarantined is not None


@in_town({"talk": TALK})
async def test_a_row_waits_for_a_key_that_this_process_lacks(place: Town) -> None:
    """While keys are changed one process may lack what others encrypt with: that is not a row's fault."""
    root = await place.start("ana", "talk")
    tried = broken(place, decisions.CLICK, KeyMissing("not this key"), times=2 * MOST_FAILURES)
    await put(place, decisions.CLICK, "bad", root)
    await place.until(lambda: len(tried) > 2 * MOST_FAILURES, most=300)
    await place.settle()
    assert outcome(place, "bad") == "applied"


@in_town({"talk": TALK})
async def test_a_retried_row_is_handled_by_the_bot_that_runs(place: Town) -> None:
    """Opened again it gets its handler once more, and what follows from it follows then."""
    root = await place.start("ana", "talk")
    broken(place, decisions.CLICK, ValueError("a fault"), times=MOST_FAILURES)
    await put(place, decisions.CLICK, "bad", root)
    await place.settle()
    assert outcome(place, "bad") == DEAD
    assert place.store.inbox.decide_letter("bad", again=True)
    place.bot.service.notify()
    await place.settle()
    assert outcome(place, "bad") == "applied"


@in_town({"talk": TALK})
async def test_whoever_pressed_outside_of_a_thread_is_told_in_private(place: Town) -> None:
    """Where there is no thread, the person who sent it is."""
    broken(place, decisions.SLASH, ValueError("a fault"))
    data = {"team": place.core.state.team_id, "user": place.user("ana").id}
    item = InboxItem("bad", decisions.SLASH, encode(data))
    await place.engine.writer.ingest([item], place.bot.machine.now())
    place.bot.service.notify()
    await place.settle()
    (said,) = [call for call in place.posted(0) if "couldn't process" in str(call.args)]
    assert said.args["channel"].startswith("D")


def outcome(place: Town, key: str) -> str | None:
    """What became of a row."""
    row = place.store.inbox.row(key)
    assert row is not None
    return row.outcome
