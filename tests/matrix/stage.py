"""A run in its thread, brought to where somebody comes to a door: the question open, answered, over, held."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from bot.rendering.forms import ACTION
from bot.workspace import elements
from bot.workspace.state import View, copied
from engine.journal.events import Event
from tests.matrix.cast import id_of
from tests.support.inprocess import Town

Json = dict[str, Any]
Element = tuple[Json, tuple[Json, Json]]
"""A message, and an element in its block."""

OPTION, FIELD, OPEN, MORE = "sayso:option:", "sayso:field:", "sayso:open:", "sayso:open:more"
TEN_DAYS = 10 * 86_400.0


@dataclass
class Stage:
    """One run, and what people saw of its question."""

    town: Town
    scenario: str
    root: str = ""
    session_id: str = ""
    prompt_id: str = ""
    shown: Json = field(default_factory=dict)
    """The question's message as it was while it was open."""
    stale: Json = field(default_factory=dict)
    """The same before it was changed for the last time."""
    menu: Json = field(default_factory=dict)

    async def events(self) -> list[Event]:
        """The journal."""
        return list(await self.town.engine.journal(self.session_id)) if self.session_id else []

    def element(self, action: str, message: Json | None = None) -> Element:
        """The first element of the question's message whose action begins so."""
        message = message or self.shown
        for found in elements.elements(message.get("blocks") or []):
            if str(found[1].get("action_id", "")).startswith(action):
                return message, found
        raise LookupError(f"no {action} in {message.get('text')}")

    async def look(self) -> None:
        """See the question as it is now."""
        prompts = (await self.town.engine.verified_state(self.session_id)).prompts
        run = list(prompts.values())[-1]
        self.prompt_id = run.prompt_id
        ts = str((run.shown or {})["ts"])
        self.shown = copied(self.town.core.state.message(self.town.channel().id, ts))

    async def opens(self, name: str, found: Element, entry: str | None = None) -> View | None:
        """Press something that opens a modal; the modal, once the bot has looked closer."""
        for view in self.town.views.stack(id_of(name)):
            self.town.views.remove(view)
        await self.town.press(id_of(name), *found, entry=entry)
        await self.town.settle()
        return self.town.view_of(id_of(name))


def handed(found: Element, kind: str) -> str:
    """The value of the entry of a menu that opens this kind of modal."""
    options = found[1][1]["options"]
    return str(next(one["value"] for one in options if one["value"].startswith(f"{kind}|")))


async def set_up(town: Town, scenario: str, state: str) -> Stage:
    """A run of this scenario in this state."""
    stage = Stage(town, scenario)
    if scenario in ("openly", "closely", "needs"):
        return stage
    stage.root = await town.start(id_of("ana"), scenario)
    (head,) = town.store.sessions.heads(
        thread_key=f"{town.core.state.team_id}:{town.channel().id}:{stage.root}"
    )
    stage.session_id = head.session_id
    await stage.look()
    await _prepare(stage)
    await _STATES[state](stage)
    await town.settle()
    return stage


async def _prepare(stage: Stage) -> None:
    town = stage.town
    if stage.scenario == "gate":
        view = await stage.opens("ed", stage.element("sayso:open:edit"))
        assert view is not None
        await town.submit(id_of("ed"), view, {"field:size": {ACTION: {"type": "number_input", "value": "7"}}})
        await town.settle()
        stage.stale = stage.shown
        await stage.look()
    if stage.scenario in ("gate", "listed", "text", "form", "day"):
        menu = stage.element(MORE)
        view = await stage.opens("hana", menu, handed(menu, "hand"))
        assert view is not None
        chosen = {"type": "users_select", "selected_user": id_of("hal")}
        await town.submit(id_of("hana"), view, {"person": {"person": chosen}})
        await town.settle()
        await stage.look()
    if stage.scenario == "mine":
        town.say(id_of("ana"), "cancel", stage.root)
        await town.settle()
        stage.menu = copied(town.find(stage.root, "sayso:cancel")[0])
    if stage.scenario == "two":
        town.say(id_of("ana"), "which one?", stage.root)
        await town.settle()
        stage.menu = town.find(stage.root, "sayso:menu:")[0]


async def _open(stage: Stage) -> None:
    return None


async def _half(stage: Stage) -> None:
    await stage.town.press(id_of("vera"), *stage.element(OPTION))
    await stage.town.settle()
    await stage.look()


async def _answered(stage: Stage) -> None:
    town = stage.town
    if stage.scenario == "gate":
        await _half(stage)
        await town.press(id_of("mia"), *stage.element(OPTION))
    elif stage.scenario in ("mine", "text"):
        town.say(id_of("ana" if stage.scenario == "mine" else "ben"), "words", stage.root)
    elif stage.scenario == "form":
        view = await stage.opens("ben", stage.element("sayso:open:form"))
        assert view is not None
        await town.submit(id_of("ben"), view, {})
    elif stage.scenario == "day":
        await town.press(id_of("ben"), *stage.element(FIELD), entry="2026-11-24")
    else:
        who = "ana" if stage.scenario in ("cut", "broken") else "ben"
        await town.press(id_of(who), *_ending(stage))
    await town.settle()


def _ending(stage: Stage) -> Element:
    """The option after which nothing is asked again: of a failed or interrupted step the last one."""
    if stage.scenario not in ("cut", "broken"):
        return stage.element(OPTION)
    count = sum(str(one.get("action_id", "")).startswith(OPTION) for one in _buttons(stage.shown))
    return stage.element(f"{OPTION}{count - 1}")


def _buttons(message: Json) -> list[Json]:
    return [one for block in message["blocks"] for one in block.get("elements") or []]


async def _expired(stage: Stage) -> None:
    stage.town.ahead += TEN_DAYS + 60
    # Timers are looked at when the bot looks for what others wrote.
    await asyncio.sleep(12.0)


async def _cancelled(stage: Stage) -> None:
    town = stage.town
    town.say(id_of("ana"), "cancel", stage.root)
    await town.settle()
    await town.press(id_of("ana"), *town.find(stage.root, "sayso:cancel"))


async def _held(stage: Stage) -> None:
    stage.town.say(id_of("ana"), "pause", stage.root)


_STATES = {
    "open": _open,
    "half": _half,
    "answered": _answered,
    "expired": _expired,
    "cancelled": _cancelled,
    "nonce": _open,
    "held": _held,
}
