"""Payloads with other types than Slack documents are acknowledged, counted, and do no harm."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from bot.inbound.decisions import MALFORMED
from bot.workspace import payloads
from engine.journal.records import InboxRow
from tests.support.inprocess import Json, Town
from tests.support.proving import PROVE, PROVE_SEED
from tests.support.simulated import in_town

TALK = """
flow: talk
inputs:
  word: {type: string, default: hello}
triggers:
  - {reaction: eyes}
nodes:
  - {id: a, type: ask, with: {message: "Say it", who: [channel]}}
  - {id: c, type: ask, with: {message: "Which?", choices: [one, two]}}
  - id: f
    type: ask
    with: {message: "Fill it", form: {properties: {size: {type: number}, why: {type: string}}}}
  - {id: b, type: message, with: {text: "heard {{ nodes.a.text }}"}}
"""
STRANGE: tuple[Any, ...] = (
    None, True, 12.5, -1, "", "x", "12:30", "\ud800", [], ["U1"], {}, {"id": 3}, [[]], "9" * 400, "\u0000"
)  # fmt: skip
SAMPLE = None if PROVE else 500


def envelopes(place: Town) -> list[Json]:
    """Keep what is delivered from now on."""
    kept: list[Json] = []
    place.alter = lambda body: kept.append(copy.deepcopy(body)) or body  # type: ignore[func-returns-value]
    return kept


async def lived(place: Town) -> list[Json]:
    """One payload of each kind that Slack sends, as they come while people work."""
    kept = envelopes(place)
    state = place.core.state
    ana = place.user("ana")
    root = await place.start("ana", "talk")
    reply = place.say("ana", "first", root)
    await place.settle()
    await place.press("ana", *place.find(root, "sayso:option:0"))
    await place.settle()
    trigger = place.views.new_trigger(ana)
    grant = {"trigger_id": trigger, "response_url": "https://slack.test/response/1"}
    await place.deliver(payloads.slash_command(state, ana, place.channel(), "/sayso", "run talk", grant))
    await place.deliver(payloads.slash_command(state, ana, place.channel(), "/sayso", "list", grant))
    for event in others(place, root, reply):
        await place.deliver(payloads.event_callback(state, event, "Ev9", place.seconds()))
    await place.settle()
    button, found = place.find(root, "sayso:open:form")
    await place.press("ana", button, found)
    await place.until(lambda: place.view_of("ana"))
    view = place.view_of("ana")
    assert view is not None
    await place.submit("ana", view, {})
    place.alter = lambda body: body
    return kept


def others(place: Town, root: str, reply: str) -> Iterator[Json]:
    """Events that no message is."""
    channel, ana, ts = place.channel(), place.user("ana"), place.core.now_ts()
    shown = place.thread(root)[-1]
    bot = place.core.state.users[place.core.state.bot_user_id]
    said = next(message for message in place.thread(root) if message["ts"] == reply)
    yield payloads.changed_event(
        channel, said, {**said, "text": "other", "edited": {"user": ana.id, "ts": ts}}, ts
    )
    yield payloads.changed_event(channel, shown, None, ts)
    yield payloads.home_event(place.core.state, ana, "D1", ts)
    yield payloads.home_event(place.core.state, ana, "D1", ts, "messages")
    yield payloads.stopped_event(place.user("ben"), channel, root, ts)
    yield {"type": "agent_session_title_changed", "channel": channel.id, "thread_ts": root, "event_ts": ts}
    yield {"type": "app_context_changed", "user": ana.id, "channel": "D1", "event_ts": ts, "context": {}}
    yield payloads.membership_event(place.core.state, "member_joined_channel", bot, channel, ts)
    item = {"type": "message", "channel": channel.id, "ts": root}
    yield {"type": "reaction_added", "user": ana.id, "reaction": "eyes", "item": item, "event_ts": ts}
    yield {"type": "channel_shared", "channel": "C0ELSEWHERE", "event_ts": ts}
    yield {"type": "channel_id_changed", "old_channel_id": "C0OLD", "new_channel_id": "C0NEW", "event_ts": ts}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything in a payload."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*path, key))


def changed(body: Json, path: tuple[Any, ...], value: Any) -> Json:
    """The payload with something else in that place; `...` takes it away."""
    body = copy.deepcopy(body)
    inside: Any = body
    for key in path[:-1]:
        inside = inside[key]
    if value is ...:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return body


def waiting(place: Town) -> list[InboxRow]:
    """Rows that are not handled yet. In a channel that was made up nothing can be shown, so replies wait there."""
    return [row for row in place.store.inbox.rows() if (row.thread_key or "").split(":")[1:2] != ["x"]]


@in_town({"talk": TALK})
async def test_no_change_of_a_payload_does_harm(place: Town, caplog: pytest.LogCaptureFixture) -> None:
    """Every value of every kind of payload, replaced by strange ones: each is acknowledged, nothing becomes a dead letter
    or an exception, and the bot continues serving."""
    bodies = await lived(place)
    kinds = {(body.get("type"), body.get("event", {}).get("type")) for body in bodies}
    assert len(kinds) >= 10, kinds
    cases = [(body, path, value) for body in bodies for path in places(body) for value in (*STRANGE, ...)]
    if SAMPLE is not None:
        cases = random.Random(PROVE_SEED).sample(cases, SAMPLE)
    for body, path, value in cases:
        try:
            await place.deliver(changed(body, path, value))
        except Exception as error:
            raise AssertionError(f"{path} = {value!r} in {body}") from error
        await asyncio.sleep(0.001)  # they do not all come at one moment
    await place.until(lambda: not waiting(place), most=3600)
    assert [(row.key, row.payload, row.result) for row in place.store.inbox.dead_letters()] == []
    assert place.app.skipped[MALFORMED] > 0
    root = place.say("ana", f"<@{place.core.state.bot_user_id}> talk")
    await place.until(lambda: "Say it" in str(place.thread(root)))
    place.say("ana", "fine", root)
    await place.until(lambda: "Which?" in str(place.thread(root)))
    await place.close()
    assert [str(record.exc_info) for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize(
    "field", [{"ts": 12.5}, {"user": ["U1"]}, {"channel": {}}, {"thread_ts": "soon"}, {"user": "\ud800"}]
)
@in_town({"talk": TALK})
async def test_a_malformed_message_is_acknowledged_and_counted(place: Town, field: Json) -> None:
    """What the issue names: acknowledged, counted as malformed, and nothing is stored."""
    place.alter = lambda body: {**body, "event": {**body["event"], **field}}
    place.say("ana", f"<@{place.core.state.bot_user_id}> talk")
    await place.settle()
    assert place.app.skipped[MALFORMED] == 2
    assert place.store.sessions.heads() == []


@in_town({"talk": TALK})
async def test_a_thread_that_is_no_text_is_never_looked_up(place: Town) -> None:
    """A lone surrogate in where a deleted message stood: the store could not look for its thread."""
    root = await place.start("ana", "talk")
    shown = {**place.thread(root)[-1], "thread_ts": "\ud800"}
    event = payloads.changed_event(place.channel(), shown, None, place.core.now_ts())
    await place.deliver(payloads.event_callback(place.core.state, event, "Ev9", place.seconds()))
    assert place.app.skipped[MALFORMED] == 1


@pytest.mark.parametrize("strange", ["\0", "9" * 1_201, "\ud800"])
@in_town({"talk": TALK})
async def test_what_identifies_a_payload_can_be_stored(place: Town, strange: str) -> None:
    """Whatever is part of a key, in every kind of payload: left out and counted, and never refused by the store."""
    bodies = await lived(place)
    ids = (
        "event_ts",
        "action_ts",
        "ts",
        "thread_ts",
        "deleted_ts",
        "trigger_id",
        "channel",
        "user",
        "id",
    )
    for body in bodies:
        for path in [path for path in places(body) if path[-1] in ids]:
            await place.deliver(changed(body, path, strange))
    await place.until(lambda: not waiting(place), most=3600)
    assert not [row.key for row in place.store.inbox.rows() if strange in row.key]
    assert place.app.skipped[MALFORMED] >= 20
    assert place.store.inbox.dead_letters() == []


@pytest.mark.parametrize("actions", [[], {}, [5], [{"action_id": 5}], None])
@in_town({"talk": TALK})
async def test_a_press_without_its_action_is_acknowledged_and_counted(place: Town, actions: Any) -> None:
    """A press that says not what was pressed starts nothing and raises nothing."""
    root = await place.start("ana", "talk")
    place.say("ana", "first", root)
    await place.settle()
    place.alter = lambda body: {**body, "actions": actions}
    await place.press("ana", *place.find(root, "sayso:option:0"))
    assert sum(place.app.skipped.values()) >= 1
    place.alter = lambda body: body
