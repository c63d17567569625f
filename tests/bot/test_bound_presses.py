"""A press counts where its question stands: in its team, its channel, its thread and its message."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bot.inbound import payloads as presses
from bot.inbound.decisions import Home, Take
from bot.workspace import elements, payloads
from bot.workspace.state import View
from tests.support.inprocess import Json, Town
from tests.support.simulated import in_town

SAMPLE = int(os.environ.get("SAYSO_PRESSES", "150"))
"""How many of the forgeries are sent."""

GATE = """
flow: gate
nodes:
  - {id: a, type: approval, with: {message: "Go?", approvers: [channel]}}
  - {id: b, type: message, with: {text: "went"}}
"""


def another_channel(body: Json) -> Json:
    """The press as if it were made in a channel where Ben is a member, and Ana's question is not."""
    channel = {"id": "C0LOCALREL", "name": "releases"}
    return {**body, "channel": channel, "container": {**body["container"], "channel_id": channel["id"]}}


def another_thread(body: Json) -> Json:
    """The press as if it were made in another thread of the channel."""
    return {
        **body,
        "container": {**body["container"], "thread_ts": "1790000000.000009"},
        "message": {**body["message"], "thread_ts": "1790000000.000009"},
    }


def another_message(body: Json) -> Json:
    """The press as if it were made in another message of the thread."""
    return {**body, "container": {**body["container"], "message_ts": "1790000000.000009"}}


def another_action(body: Json) -> Json:
    """The press as if an element did it that nobody knows, with this button's value."""
    return {**body, "actions": [{**body["actions"][0], "action_id": "sayso:nope"}]}


def another_option(body: Json) -> Json:
    """The press as if the other button did it, with this button's value."""
    return {**body, "actions": [{**body["actions"][0], "action_id": "sayso:option:1"}]}


def another_block(body: Json) -> Json:
    """The press as if it were made in a block that the message does not have."""
    return {**body, "actions": [{**body["actions"][0], "block_id": "nope"}]}


def another_nonce(body: Json) -> Json:
    """The press as if it were one of an earlier copy of the question."""
    return {**body, "actions": [{**body["actions"][0], "value": stale(body["actions"][0]["value"])}]}


def another_team(body: Json) -> Json:
    """The press as if it came from another workspace."""
    return {**body, "team": {"id": "T0OTHER01"}, "user": {**body["user"], "team_id": "T0OTHER01"}}


FORGERIES = [
    another_channel,
    another_thread,
    another_message,
    another_team,
    another_action,
    another_option,
    another_block,
    another_nonce,
]


@pytest.mark.parametrize("forge", FORGERIES)
@in_town({"gate": GATE})
async def test_a_press_from_elsewhere_decides_nothing(place: Town, forge: Callable[[Json], Json]) -> None:
    """A press by the right person with the right ids is refused in another place and counts in its own place."""
    root = await place.start("ana", "gate")
    message, found = place.find(root, "sayso:option:0")
    place.alter = forge
    await place.press("ben", message, found)
    await place.settle()
    assert open_prompts(place) == 1
    place.alter = lambda body: body
    await place.press("ben", message, found)
    await place.settle()
    assert open_prompts(place) == 0
    assert "went" in str(place.thread(root))


def open_prompts(place: Town) -> int:
    """How many questions wait."""
    return sum(prompt.status == "shown" for prompt in place.store.prompts.rows())


def test_a_bot_that_does_not_look_at_the_block_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded fault: whatever is pressed counts as standing where Slack says."""
    monkeypatch.setattr(presses, "_stands", lambda body, action: True)
    with pytest.raises(AssertionError):
        test_a_press_from_elsewhere_decides_nothing(tmp_path, forge=another_block)


DESK = """
flow: desk
nodes:
  - id: work
    type: parallel
    branches:
      two: [{id: a, type: approval, with: {message: "Go?", approvers: [channel], required: 2}}]
      why: [{id: b, type: approval, with: {message: "Sure?", approvers: [channel], require_reason: true}}]
      pick: [{id: c, type: ask, with: {message: "Which?", choices: [one, two]}}]
      back: [{id: d, type: ask, with: {message: "Size?", choices: [small, large]}}]
      many: [{id: e, type: ask, with: {message: "Day?", choices: [a, b, c, d, e, f, g, h]}}]
      date: [{id: f, type: ask, with: {message: "When?", form: {properties: {day: {type: string, format: date}}}}}]
      form: [{id: g, type: ask, with: {message: "How?", form: {properties: {size: {type: integer}, why: {type: string}}}}}]
      edit: [{id: h, type: approval, with: {message: "So?", approvers: [channel], form: {properties: {size: {type: integer, default: 1}}}, editable: [size]}}]
"""


def elements_of(message: Json) -> list[tuple[str, str, str]]:
    """Block, action and value of everything that can be pressed in a message."""
    return [
        (block["block_id"], element["action_id"], value)
        for block, element in elements.elements(message.get("blocks") or [])
        for value in [option["value"] for option in element.get("options") or [element] if "value" in option]
        or [""]
    ]


@pytest.mark.parametrize("with_message", [True, False], ids=["as-slack-sends-it", "without-the-message"])
@in_town({"desk": DESK})
async def test_an_action_counts_with_its_own_value_alone(place: Town, with_message: bool) -> None:
    """No press counts whose action, block, value, message or nonce is that of something else, or of nothing."""
    roots = [await place.start("ana", "desk"), await place.start("ana", "desk")]
    await place.press("ana", *place.find(roots[0], "sayso:option:0", "Size?"))
    await place.settle()
    shown = [message for root in roots for message in place.thread(root)]
    real = [(message, *found) for message in shown for found in elements_of(message)]
    assert len(real) > 40
    before = await journals(place)
    actions = {action for _, _, action, _ in real} | {"sayso:nope", "sayso:option:7", "sayso:option:"}
    values = {value for *_, value in real}
    blocks = {block for _, block, _, _ in real} | {"nope"}
    forged = []
    for message, block, action, value in real:
        own, ts = elements_of(message), message["ts"]
        forged += [
            (message, *one)
            for one in (
                *((block, other, value, ts) for other in actions),
                *((block, action, other, ts) for other in values | {stale(value)}),
                *((other, action, value, ts) for other in blocks if with_message),
                *((block, action, value, other["ts"]) for other in shown if with_message),
            )
            if (one[:3] not in own if with_message else one[1:3] not in [pair[1:] for pair in own])
            or one[3] != ts
        ]
    assert len(forged) > 1000
    for message, *one in random.Random(24).sample(sorted(forged, key=str), SAMPLE):
        await place.deliver(forgery(place, message, *one, with_message=with_message))
    await place.settle(3600)
    assert await journals(place) == before
    await place.press("ben", *place.find(roots[1], "sayso:option:0", "Go?"))
    await place.settle()
    assert await journals(place) != before


def stale(value: str) -> str:
    """The value with another nonce."""
    prompt, bar, rest = value.partition("|")
    return f"{prompt}{bar}0{rest}"


def forgery(
    place: Town, message: Json, block: str, action: str, value: str, ts: str, *, with_message: bool
) -> Json:
    """The payload of a press by Ben of an element that the message may not have."""
    pressed = {"type": "button", "block_id": block, "action_id": action, "value": value}
    pressed["action_ts"] = place.core.now_ts()
    grant = place.hands._grant(place.user("ben"), place.channel(), message)
    body = payloads.message_actions(
        place.core.state, place.user("ben"), place.channel(), message, pressed, {}, grant
    )
    body["container"]["message_ts"] = ts
    if not with_message:
        del body["message"]
    return body


async def journals(place: Town) -> list[list[str]]:
    """What has happened in each session."""
    heads = place.store.sessions.heads()
    return [[str(event) for event in await place.engine.journal(head.session_id)] for head in heads]


async def views_of(place: Town, roots: list[str]) -> list[View]:
    """The modals that Ben can open about the questions of two runs, as he sees them."""
    found = []
    for root in roots:
        for message in place.thread(root):
            for block, element in elements.elements(message.get("blocks") or []):
                menu = [option["value"] for option in element.get("options") or []]
                if not element["action_id"].startswith("sayso:open:"):
                    continue
                for entry in menu or [None]:
                    await place.press("ben", message, (block, element), entry)
                    await place.settle()
                    found += place.views.stack(place.user("ben").id)
                    place.core.state.views.clear()
    return found


@in_town({"desk": DESK})
async def test_a_modal_counts_for_its_own_question_alone(place: Town) -> None:
    """A view that comes back with the nonce of another copy, or as a kind that its question does not have, decides nothing
    and is answered."""
    roots = [await place.start("ana", "desk"), await place.start("ana", "desk")]
    views = await views_of(place, roots)
    assert {view.body["callback_id"] for view in views} == {
        "sayso:hand",
        "sayso:answer",
        "sayso:edit",
    }
    filled = {
        "reason": {"reason": {"type": "plain_text_input", "value": "approve"}},
        "person": {"person": {"type": "users_select", "selected_user": place.user("cleo").id}},
        "field:size": {"value": {"type": "plain_text_input", "value": "9"}},
    }
    before = await journals(place)
    forged = [(view, view.body["callback_id"], "0") for view in views]
    forged += [(view, f"sayso:{kind}", None) for view in views for kind in NONE_OF_THEIRS]
    others = [view for view in views if view.body["callback_id"] != "sayso:answer"]
    forged += [(view, "sayso:answer", None) for view in others]
    for number, (view, kind, nonce) in enumerate(forged):
        meta = json.loads(view.body["private_metadata"])
        meta |= {} if nonce is None else {"nonce": nonce}
        body = {**view.body, "callback_id": kind, "private_metadata": json.dumps(meta)}
        await place.submit("ben", replace(view, id=f"{view.id}{number}", body=body), filled)
    await place.settle()
    assert await journals(place) == before
    view = next(view for view in views if view.body["callback_id"] == "sayso:answer")
    await place.submit("ben", view, filled)
    await place.settle()
    assert await journals(place) != before


NONE_OF_THEIRS = ("always", "told", "reject", "together", "form", "start", "nope")
"""Kinds of views that the questions of `DESK` do not have."""


@pytest.mark.parametrize("wrong", ["", "block_id", "action_id", "value"])
def test_a_press_on_home_is_of_what_stands_there(wrong: str) -> None:
    """A button of the app's Home counts in its block, with its action and its value."""
    button = {"type": "button", "action_id": "sayso:option:0", "value": "prompt-1|n|0|C1|1.0"}
    view = {"id": "V1", "type": "home", "blocks": [{"block_id": "press:prompt-1", "elements": [button]}]}
    action = {**button, "block_id": "press:prompt-1", "action_ts": "3.0"}
    action |= {wrong: f"{action[wrong]}1".replace("C1", "C2")} if wrong else {}
    body = {
        "type": "block_actions",
        "team": {"id": "T1"},
        "user": {"id": "U1", "team_id": "T1"},
        "container": {"type": "view", "view_id": "V1"},
        "view": view,
        "actions": [action],
    }
    taken = presses.read(body, Home("T1", None, "UBOT"))
    assert isinstance(taken, Take)
    assert ("stale" in json.loads(taken.item.payload)) is bool(wrong)
