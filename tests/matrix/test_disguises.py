"""What comes in the name of somebody who may, but is not what it seems: of another team or app, of a bot, edited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.matrix.cast import FLOWS, RUNNERS, id_of, settle_in
from tests.matrix.doors import CONTROLS, DOORS, STARTS, Door
from tests.matrix.stage import Stage, set_up
from tests.matrix.table import GETS_IN
from tests.matrix.test_matrix import cell
from tests.support.inprocess import Town, play, town

Json = dict[str, Any]
Alter = Callable[[Json], Json]


def _of_another_team(body: Json) -> Json:
    body = {**body, "team_id": "T0OTHER01"} if "team_id" in body else body
    return {**body, "team": {"id": "T0OTHER01"}} if "team" in body else body


def _of_another_app(body: Json) -> Json:
    return {**body, "api_app_id": "A0OTHER01"}


def _event(change: Callable[[Json], Json]) -> Alter:
    def alter(body: Json) -> Json:
        event = body.get("event") or {}
        is_message = event.get("type") in ("message", "app_mention") and "bot_id" not in event
        return {**body, "event": change(event)} if is_message else body

    return alter


def _changed(event: Json) -> Json:
    inner = {**event, "edited": {"user": event["user"], "ts": event["ts"]}}
    outer: Json = {key: event[key] for key in ("channel", "channel_type", "event_ts") if key in event}
    return {
        **outer,
        "type": "message",
        "subtype": "message_changed",
        "message": inner,
        "previous_message": event,
        "ts": event["ts"],
    }


ANYTHING: Mapping[str, Alter] = {"another team": _of_another_team, "another app": _of_another_app}
MESSAGES: Mapping[str, Alter] = {
    "edited": _event(lambda event: {**event, "edited": {"user": event["user"], "ts": event["ts"]}}),
    "changed": _event(_changed),
    "deleted": _event(lambda event: {**_changed(event), "subtype": "message_deleted", "deleted_ts": event["ts"]}),
    "of a bot": _event(lambda event: {**event, "bot_id": "B0OTHER01"}),
    "of an app": _event(lambda event: {**event, "app_id": "A0OTHER01"}),
    "of a workflow": _event(lambda event: {**event, "subtype": "bot_message", "bot_id": "B0FLOW01", "user": None}),
    "by nobody": _event(lambda event: {**event, "user": None}),
    "a topic": _event(lambda event: {**event, "subtype": "channel_topic"}),
    "of me": _event(lambda event: {**event, "subtype": "me_message"}),
}  # fmt: skip


def rightful(scenario: str, door: Door) -> str:
    """Somebody who gets in by this door as they are."""
    return next(name for name in GETS_IN[scenario, door.action] if name not in ("ola", "lena", "otis"))


def cases() -> list[tuple[str, Door]]:
    """Every door of Slack that anybody gets in by."""
    everything = [*DOORS.items(), *CONTROLS.items(), *STARTS.items()]
    return [
        (scenario, door)
        for scenario, doors in everything
        for door in doors
        if door.kind != "cli" and GETS_IN[scenario, door.action]
    ]


async def disguised(place: Town, scenario: str, door: Door, disguises: Mapping[str, Alter]) -> list[str]:
    """What is wrong when the rightful person's payloads are changed on their way."""
    wrong: list[str] = []
    stage: Stage | None = None
    for disguise, alter in disguises.items():
        if stage is None:
            state, flow = ("held", "mine") if scenario == "held" else ("open", scenario)
            stage = await set_up(place, flow, state)
        place.alter = alter
        kind = "quiet" if door.kind in ("press", "modal") else door.kind
        quiet = Door(door.name, door.action, door.act, door.does, kind)
        got_in, problems = await cell(stage, quiet, "open", rightful(scenario, door), False)
        place.alter = lambda body: body
        wrong += [f"{scenario}, {door.name}, {disguise}: {problem}" for problem in problems]
        stage = None if got_in else stage
    return wrong


def messages(door: Door) -> bool:
    """Whether what comes by this door is a message."""
    return door.kind in ("message", "word", "overheard") or door.name.startswith(("mention", "words"))


@pytest.mark.parametrize("disguises", ["anything", "messages"])
def test_no_disguise_opens_a_door(tmp_path: Path, disguises: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Payloads of another team or app, edited text, and what bots and workflows write change nothing and tell nobody."""
    wrong: list[str] = []
    chosen = ANYTHING if disguises == "anything" else MESSAGES
    through = [(scenario, door) for scenario, door in cases() if disguises == "anything" or messages(door)]

    async def story() -> None:
        async with town(tmp_path, FLOWS, runners=RUNNERS, admins=frozenset({id_of("adam")})) as place:
            settle_in(place)
            for scenario, door in through:
                wrong.extend(await disguised(place, scenario, door, chosen))

    play(story)
    with capsys.disabled():
        print(f"\ndisguises of {disguises}: {len(through) * len(chosen)} cells, {len(wrong)} wrong")
    assert wrong == []
