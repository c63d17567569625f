"""Whatever a flow says, no request is larger than Slack takes: the workspace checks each one as Slack does."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bot.workspace import elements
from bot.workspace.state import View, WorkspaceError
from engine.flow.load import load_flow
from engine.language.codec import Json
from engine.language.errors import FlowError
from engine.language.template import MARKS, is_blank
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, NodeContext, Outcome
from tests.support.inprocess import Town, play, town
from tests.support.longflows import long_flows, names, texts
from tests.support.proving import PROVE

STEPS = 14
"""Questions that are dealt with in one run."""


async def shell(config: dict[str, Json], ctx: NodeContext) -> Outcome:
    """Says again what it was given, or fails with it."""
    name, *words = config["run"]
    if name == "fail":
        return Failed("exit_code", " ".join(map(str, words)), {"stdout": words[0], "stderr": words[0]})
    if len(words[0]) % 3 == 0:
        return Interrupted("timeout", words[0])
    return Completed({"stdout": words[0], "stderr": words[0], "exit_code": 0, "seconds": 0})


def filled(view: View, text: str) -> dict[str, Any]:
    """Something in every input of a modal: what is there, the first option, a long text."""
    values: dict[str, Any] = {}
    for block, element in elements.elements(view.body["blocks"]):
        if block["type"] != "input":
            continue
        entry = view.values.get(block["block_id"], {}).get(element["action_id"]) or {}
        values[block["block_id"]] = {element["action_id"]: {**entry, **_filled(element, entry, text)}}
    return values


def _filled(element: dict[str, Any], entry: dict[str, Any], text: str) -> dict[str, Any]:
    kind, field = element["type"], elements.VALUE_FIELDS[element["type"]]
    options = element.get("options") or [o for g in element.get("option_groups") or [] for o in g["options"]]
    made: Any = {
        "number_input": "12",
        "datepicker": "2026-11-24",
        "datetimepicker": 1_790_000_000,
        "users_select": "U0LOCALDEV",
        "conversations_select": "C0LOCALREL",
        "channels_select": "C0LOCALREL",
        "email_text_input": "a@example.com",
        "url_text_input": "https://example.com/a",
    }.get(kind, text[: element.get("max_length", 3_000)])
    if options:
        made = options if field == "selected_options" else options[-1]
    return {"type": kind, field: made}


class Run:
    """People in one thread who do everything that there is to do."""

    def __init__(self, place: Town, root: str, text: str) -> None:
        self.place, self.root, self.text = place, root, text
        self.opened = 0

    async def step(self, number: int) -> bool:
        """Deal with the newest open question; False where there is none."""
        for message in reversed(self.place.thread(self.root)):
            found = [
                one for one in elements.elements(message.get("blocks") or [])
                if str(one[1].get("action_id", "")).startswith(("sayso:open", "sayso:option", "sayso:field"))
            ]  # fmt: skip
            if found:
                await self._deal(message, found, number)
                return True
        return False

    async def _deal(self, message: Any, found: list[Any], number: int) -> None:
        user = ("ana", "ben", "cleo", "dev")[number % 4]
        for block, element in found:
            if element["action_id"].startswith("sayso:open"):
                for option in element.get("options") or [{"value": element.get("value")}]:
                    await self._modal(user, message, (block, element), option["value"])
        self.place.say(user, self.text[:11_000], self.root)
        await self.place.settle()
        pressed = [one for one in found if one[1]["action_id"].startswith("sayso:option")]
        if pressed:
            block, element = pressed[number % len(pressed)]
            options = element.get("options")
            value = options[number % len(options)]["value"] if options else None
            await self.place.press(user, message, (block, element), entry=value)
            await self.place.settle()

    async def _modal(self, user: str, message: Any, found: Any, value: str) -> None:
        await self.place.press(user, message, found, entry=value)
        await self.place.settle()
        view = self.place.view_of(user)
        for _ in range(4):
            if view is None or not str(view.body.get("callback_id", "")).startswith("sayso:"):
                return
            self.opened += 1
            try:
                # Empty first, which is mostly wrong, and then with something in every field.
                await self.place.hands.submit(self.place.user(user), view, {})
                if self.place.view_of(user) is None:
                    return
                await self.place.hands.submit(self.place.user(user), view, filled(view, self.text))
            except WorkspaceError as error:
                raise AssertionError(f"{view.body['callback_id']}: {error}") from error
            await self.place.settle()
            view = self.place.view_of(user)


async def everything(place: Town, text: str) -> int:
    """Start the flow in all ways, go through its questions, and look at it from everywhere; how many calls that made."""
    ana = place.user("ana")
    ways = place.hands
    await ways.slash(ana, place.channel(), "/sayso", "run long")
    await ways.slash(ana, place.channel(), "/sayso", "list")
    await ways.slash(ana, place.channel(), "/sayso", text[:11_000])
    await place.settle()
    view = place.view_of("ana")
    if view is not None:
        await ways.submit(ana, view, filled(view, text))
    root = await place.start("ana", "long")
    place.say("ana", "<@U0LOCALBOT> list")
    run = Run(place, root, text)
    for number in range(STEPS):
        if not await run.step(number):
            break
        if number == 1:
            place.ahead += 1_800
            await asyncio.sleep(12.0)
        if number == 3:
            for word in (
                "status",
                "help",
                "pause",
                "status",
                "resume",
                "cancel",
                "#1: no",
                f"#1: {text[:11_000]}",
            ):
                place.say("ana", word, root)
            await place.settle()
            ways.open_home(ana)
    ways.open_home(place.user("ben"))
    await ways.slash(ana, place.channel(), "/sayso", "status")
    place.ahead += 10_000
    await asyncio.sleep(12.0)
    await place.settle()
    return len(place.calls)


EXPECTED = {("users.conversations", "missing_scope")}
"""Refusals that have nothing to do with sizes."""


@settings(max_examples=25 if PROVE else 3, suppress_health_check=list(HealthCheck))
@given(flow=long_flows(), text=texts(), person=names(80))
def test_no_request_is_larger_than_slack_takes(flow: str, text: str, person: str) -> None:
    """Flows with long texts everywhere, and people who do all they can: Slack refuses nothing."""
    try:
        load_flow(flow, "long.yml")
    except FlowError:
        assume(False)

    async def story(folder: Path) -> None:
        more = {f"other{n}": flow.replace('"flow": "long"', f'"flow": "other-{n}"', 1) for n in range(2)}
        async with town(folder, {"long": flow, **more}, runners={"shell": shell}) as place:
            for name in ("ana", "ben"):
                place.user(name).real_name = person
            assert await everything(place, text) > 20
            refused = [
                (call.method, call.answer["error"], call.answer.get("response_metadata") or call.answer)
                for call in place.refused
                if (call.method, call.answer["error"]) not in EXPECTED
            ]
            assert refused == []

    with tempfile.TemporaryDirectory() as folder:
        play(lambda: story(Path(folder)))


@pytest.mark.parametrize("flows", [0, 1, 60])
@settings(max_examples=4 if PROVE else 1, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_home_and_a_list_of_many_flows_fit(flows: int, data: st.DataObject) -> None:
    """Many flows with long descriptions, and many runs of them: the Home, the list and the menu of the shortcut fit."""
    about = data.draw(texts())
    assume(not is_blank(about, MARKS))  # a question that nobody can see is no flow
    text = '{{"flow": "f{n}", "description": {about}, "triggers": [{{"shortcut": "{n} look"}}], "nodes": [{{"id": "q", "type": "ask", "with": {{"message": {about}}}}}]}}'

    async def story(folder: Path) -> None:
        served = {
            f"f{n}": text.format(n=n, about=json.dumps(about, ensure_ascii=False)) for n in range(flows)
        }
        async with town(folder, served) as place:
            assert len(place.bot.library.refresh()) == flows
            for n in range(min(flows, 25)):
                place.say("ana", f"<@U0LOCALBOT> f{n}")
            await place.settle()
            place.hands.open_home(place.user("ana"))
            place.say("ana", "<@U0LOCALBOT> help")
            await place.hands.slash(place.user("ana"), place.channel(), "/sayso", "list")
            await place.hands.slash(place.user("ana"), place.channel(), "/sayso", "status")
            message = place.core.state.message(place.channel().id, place.say("ana", "about this"))
            assert message is not None
            await place.hands.message_shortcut(place.user("ana"), place.channel(), message, "sayso:run")
            await place.settle()
            refused = [call for call in place.refused if (call.method, call.answer["error"]) not in EXPECTED]
            assert [(call.method, call.answer) for call in refused] == []

    with tempfile.TemporaryDirectory() as folder:
        play(lambda: story(Path(folder)))
