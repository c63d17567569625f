"""A press counts where its question stands: in its team, its channel, its thread and its message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.inprocess import Json, Town, play, town

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


def another_team(body: Json) -> Json:
    """The press as if it came from another workspace."""
    return {**body, "team": {"id": "T0OTHER01"}, "user": {**body["user"], "team_id": "T0OTHER01"}}


@pytest.mark.parametrize("forge", [another_channel, another_thread, another_message, another_team])
def test_a_press_from_elsewhere_decides_nothing(tmp_path: Path, forge: Callable[[Json], Json]) -> None:
    """The right ids under the right person's finger, in another place: refused; in its own place it counts."""

    async def story() -> None:
        async with town(tmp_path, {"gate": GATE}) as place:
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

    play(story)


def open_prompts(place: Town) -> int:
    """How many questions wait."""
    return sum(prompt.status == "shown" for prompt in place.store.prompts())
