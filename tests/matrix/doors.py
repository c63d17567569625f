"""The doors: what somebody does to get something done, as the payload in which it arrives."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from bot.cli.prompts import Change, Given, answer_prompt, change_prompt
from bot.cli.prompts import Change as PromptChange
from bot.cli.resume import Resume, abort_session, pause_session, resume_session
from bot.cli.serve import start_flow_command
from bot.rendering.forms import ACTION
from bot.wire.manifest import SHORTCUT
from bot.workspace import payloads
from bot.workspace.state import User, View, copied
from engine.language.errors import SaysoError
from tests.matrix.cast import id_of
from tests.matrix.stage import FIELD, MORE, OPEN, OPTION, Element, Json, Stage, handed
from tests.support.inprocess import Town, settings_for

Act = Callable[[Stage, str, str], Awaitable[Any]]
"""What a person does in a state of the question; what they were answered at once."""


@dataclass(frozen=True)
class Door:
    """A way to do something. `does` is the event that it writes when it is taken."""

    name: str
    action: str
    act: Act
    does: tuple[str, ...]
    kind: str
    """`message`, `press`, `modal` or `cli`: how a refusal looks."""


def somebody(town: Town, name: str) -> User:
    """Whoever comes, whether Slack knows them or not."""
    found = town.core.state.users.get(id_of(name))
    return found or User(id_of(name), name, name, team_id=town.core.state.team_id)


# --- pressing ----------------------------------------------------------------------------------------------


def press(prefix: str, entry: str | None = None) -> Act:
    """Press an element of the question's message, as it was when it was open."""

    async def act(stage: Stage, name: str, state: str) -> None:
        message, found = stage.element(prefix)
        if state == "nonce":
            message, found = _other_nonce(stage, prefix)
        await send_press(stage.town, somebody(stage.town, name), message, found, entry)

    return act


async def send_press(
    town: Town, user: User, message: Json, found: tuple[Json, Json], entry: Any = None
) -> None:
    """The payload of a press, by whoever it is."""
    known = town.core.state.users
    known[user.id] = known.get(user.id, user)
    try:
        await town.press(user.id, message, found, entry=entry)
    finally:
        if user.id == id_of("ghost"):
            known.pop(user.id)


def _other_nonce(stage: Stage, prefix: str) -> Element:
    """The same element with a nonce of another time: an old message where there is one."""
    if stage.stale:
        try:
            return stage.element(prefix, stage.stale)
        except LookupError:
            pass
    message, (block, element) = stage.element(prefix)
    text = json.dumps([block, element])
    nonce = next(iter(_nonces(stage)))
    block, element = json.loads(text.replace(nonce, "0" * len(nonce)))
    return message, (block, element)


def _nonces(stage: Stage) -> set[str]:
    handle = json.dumps(stage.shown["blocks"]).split(f"{stage.prompt_id}|")[1:]
    return {part.split('"', 1)[0].split("|", 1)[0] for part in handle}


# --- modals ------------------------------------------------------------------------------------------------


def modal(kind: str, values: Json) -> Act:
    """Open a modal and submit it. Whoever it is not opened for forges the submission all the same."""

    async def act(stage: Stage, name: str, state: str) -> Any:
        town, user = stage.town, somebody(stage.town, name)
        prefix = MORE if kind == "hand" else f"{OPEN}{kind}"
        message, found = _other_nonce(stage, prefix) if state == "nonce" else stage.element(prefix)
        entry = handed((message, found), kind) if kind == "hand" else None
        for view in town.views.stack(user.id):
            town.views.remove(view)
        await send_press(town, user, message, found, entry)
        await town.settle()
        opened = next(iter(town.views.stack(user.id)), None)
        if opened is None or opened.body.get("callback_id") != f"sayso:{kind}":
            opened = _forged(stage, kind, user, state)
        opened.values = {**opened.values, **copied(values)}
        return await town.deliver(payloads.view_submission(town.core.state, user, opened, "trigger"))

    return act


def _forged(stage: Stage, kind: str, user: User, state: str) -> View:
    """A submission of a modal that the bot never opened for this person."""
    message, found = stage.element(MORE if kind == "hand" else f"{OPEN}{kind}")
    value = handed((message, found), kind) if kind == "hand" else found[1]["value"]
    prompt_id, nonce, *index = value.removeprefix(f"{kind}|").split("|")
    meta: Json = {
        "promptId": prompt_id,
        "nonce": "0" * len(nonce) if state == "nonce" else nonce,
        "channel": stage.town.channel().id,
        "threadTs": stage.root,
        "user": user.id,
        "index": "".join(index),
        "page": 0,
        "pages": [],
    }
    label = {"type": "plain_text", "text": "x"}
    block = {
        "type": "input",
        "block_id": "x",
        "label": label,
        "element": {"type": "plain_text_input", "action_id": "x"},
    }
    body = {
        "type": "modal",
        "title": label,
        "blocks": [block],
        "callback_id": f"sayso:{kind}",
        "private_metadata": json.dumps(meta),
    }
    view_id = stage.town.core.state.new_id("V")
    return View(view_id, user.id, body, "0", view_id)


# --- writing -----------------------------------------------------------------------------------------------


def says(text: str, **more: Any) -> Act:
    """Write this in the thread. `#q` is replaced by the question's number."""

    async def act(stage: Stage, name: str, state: str) -> None:
        write(stage.town, somebody(stage.town, name), text, stage.root or None, **more)

    return act


def write(town: Town, user: User, text: str, root: str | None, **more: Any) -> str:
    """A message as it arrives, by whoever it is; its ts."""
    text = text.replace("@sayso", f"<@{town.core.state.bot_user_id}>")
    message = town.core.post(user, town.channel(), text, thread_ts=root, **more)
    return str(message["ts"])


# --- the terminal ------------------------------------------------------------------------------------------


class _Looking:
    """The store as a command of another process sees it: the bot is not waited for, it takes the request later."""

    def __init__(self, town: Town) -> None:
        self._store = town.store.another()
        self._ingest, self._store.inbox.ingest = self._store.inbox.ingest, self._noted  # type: ignore[method-assign]
        self.keys: list[str] = []

    def close(self) -> None:
        """The bot continues with it."""

    def serving(self) -> frozenset[str]:
        return frozenset()

    def _noted(self, items: Any, now: str) -> Any:
        self.keys += [item.key for item in items]
        return self._ingest(items, now)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def at_terminal(command: Callable[[Any, Stage], int]) -> Act:
    """Run a command of the CLI as somebody at the terminal; what it was told, by the bot or at once."""

    async def act(stage: Stage, name: str, state: str) -> str | None:
        town = stage.town
        # The town's time is not the command's: its retention reaches back further than both.
        settings = settings_for(town.folder, local_user=name, retention_days=36_500)
        place = SimpleNamespace(settings=lambda: settings)
        looking = _Looking(town)
        try:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr("engine.storage.open.open_store", lambda *_, **__: looking)
                patched.setattr("bot.cli.prompts.utc_now", town.bot.machine.now)
                # A command runs its own loop, and this one is the town's.
                with ThreadPoolExecutor(1) as thread:
                    thread.submit(command, place, stage).result()
        except SaysoError as error:
            return str(error)
        await town.settle()
        for key in looking.keys:
            for row in (town.store.inbox.row(key), town.store.inbox.row(f"rooted:{key}")):
                if row is not None and row.outcome == "refused":
                    return str(json.loads(row.result or b"{}").get("message"))
        return None

    return act


def _answer(given: Given, as_name: str | None = None) -> Act:
    return at_terminal(
        lambda place, stage: answer_prompt(place, stage.prompt_id, given, as_name, wait=False, as_json=True)
    )


def _change(change: PromptChange) -> Act:
    return at_terminal(lambda place, stage: change_prompt(place, stage.prompt_id, change, None, as_json=True))


# --- all of them -------------------------------------------------------------------------------------------

VOTED = ("prompt:voted", "prompt:answered")
ANSWERED = ("prompt:answered",)
SIZE = {"field:size": {ACTION: {"type": "number_input", "value": "9"}}}
PLACE = {"field:place": {ACTION: {"type": "plain_text_input", "value": "there"}}}
WHY = {"reason": {"reason": {"type": "plain_text_input", "value": "too late today"}}}
TO_CLEO = {"person": {"person": {"type": "users_select", "selected_user": id_of("cleo")}}}


def _hand(action: str = "hand") -> list[Door]:
    to_cleo = PromptChange("handOver", {"to": id_of("cleo")}, "done")
    return [
        Door("hand modal", action, modal("hand", TO_CLEO), ("prompt:handed",), "modal"),
        Door("hand at the terminal", action, _change(to_cleo), ("prompt:handed",), "cli"),
    ]


def _words(words: tuple[str, ...], does: tuple[str, ...]) -> list[Door]:
    return [Door(f"says {word}", "control", says(word), does, "word") for word in words]


GO = Resume(None, None, None, None, None, None)

DOORS: dict[str, list[Door]] = {
    "gate": [
        Door("approve button", "vote", press(OPTION), VOTED, "press"),
        Door("reject modal", "vote", modal("answer", WHY), VOTED, "modal"),
        Door("edit modal", "edit", modal("edit", SIZE), ("prompt:edited",), "modal"),
        *_hand(),
        Door("says approve", "never", says("Approve"), VOTED, "message"),
        Door("says #1: approve", "never", says("#1: approve"), VOTED, "message"),
        Door("says #gate: approve", "never", says("#gate: Approve"), VOTED, "message"),
        Door("approve at the terminal", "vote", _answer(Given(answer="Approve")), VOTED, "cli"),
        Door("reject at the terminal", "vote", _answer(Given(answer="Reject", reason="no")), VOTED, "cli"),
        Door("played at the terminal", "never", _answer(Given(answer="Approve"), id_of("ben")), VOTED, "cli"),
        Door("edit at the terminal", "edit", _change(Change("edit", {"values": {"size": "9"}}, "")), ("prompt:edited",), "cli"),
    ],
    "mine": [
        Door("reply", "answer", says("my word"), ANSWERED, "message"),
        Door("mention", "answer", says("@sayso my word"), ANSWERED, "message"),
        Door("named reply", "answer", says("#1: my word"), ANSWERED, "message"),
        Door("reply at the terminal", "answer", _answer(Given(answer="my word")), ANSWERED, "cli"),
        *_hand(),
    ],
    "listed": [
        Door("choice button", "answer", press(OPTION), ANSWERED, "press"),
        Door("typed choice", "answer", says("eu"), ANSWERED, "message"),
        Door("typed number", "answer", says("#1: 2"), ANSWERED, "message"),
        Door("choice at the terminal", "answer", _answer(Given(answer="eu")), ANSWERED, "cli"),
        *_hand(),
    ],
    "text": [
        Door("reply", "answer", says("words"), ANSWERED, "message"),
        Door("reply in the channel too", "answer", says("words", subtype="thread_broadcast"), ANSWERED, "message"),
        Door("reply at the terminal", "answer", _answer(Given(text="words")), ANSWERED, "cli"),
    ],
    "form": [
        Door("form modal", "answer", modal("form", {**SIZE, **PLACE}), ANSWERED, "modal"),
        Door("form at the terminal", "answer", _answer(Given(fields=("size=9",))), ANSWERED, "cli"),
    ],
    "day": [
        Door("control in the message", "answer", press(FIELD, "2026-11-24"), ANSWERED, "press"),
        Door("typed day", "answer", says("2026-11-24"), ANSWERED, "message"),
    ],
    "everybody": [
        Door("choice button", "answer", press(OPTION), ANSWERED, "press"),
        Door("typed choice", "answer", says("yes please"), ANSWERED, "message"),
    ],
    "cut": [
        Door("run again button", "resolve", press(OPTION), ANSWERED, "press"),
        Door("says done", "never", says("Done"), ANSWERED, "message"),
        Door("done at the terminal", "resolve", _answer(Given(value="done")), ANSWERED, "cli"),
        *_hand("resolve"),
    ],
    "broken": [
        Door("retry button", "resolve", press(OPTION), ANSWERED, "press"),
        Door("says skip", "never", says("skip"), ANSWERED, "message"),
        Door("skip at the terminal", "resolve", _answer(Given(value="skip")), ANSWERED, "cli"),
    ],
}  # fmt: skip


async def _confirmed(stage: Stage, name: str, state: str) -> None:
    """Press the button that ends the run, below the question that Ana's `cancel` asked."""
    message, found = stage.element("sayso:cancel", stage.menu)
    await send_press(stage.town, somebody(stage.town, name), message, found)


async def _meant(stage: Stage, name: str, state: str) -> None:
    """Say which question Ana's words answered."""
    message, found = stage.element("sayso:menu:", stage.menu)
    await send_press(stage.town, somebody(stage.town, name), message, found)


HELD, WENT_ON, ENDED = ("flow:paused",), ("flow:resumed",), ("session:abort", "session:end")

CONTROLS: dict[str, list[Door]] = {
    "mine": [
        *_words(("pause", "Stop!", "@sayso pause"), HELD),
        Door("cancel button", "control", _confirmed, ENDED, "press"),
        Door("pause at the terminal", "control at the terminal",
             at_terminal(lambda place, stage: pause_session(place, stage.session_id, None, as_json=True)), HELD, "cli"),
        Door("abort at the terminal", "control at the terminal",
             at_terminal(lambda place, stage: abort_session(place, stage.session_id, None, as_json=True)), ENDED, "cli"),
    ],
    "held": [
        *_words(("resume", "Resume and hurry"), WENT_ON),
        Door("resume at the terminal", "control at the terminal",
             at_terminal(lambda place, stage: resume_session(
                 place, Resume(stage.session_id, None, None, None, None, None), SimpleNamespace(json=True))), WENT_ON, "cli"),  # type: ignore[arg-type]  # the part of a mode that is read
    ],
    "two": [Door("menu button", "author", _meant, ANSWERED, "press")],
}  # fmt: skip


# --- starting ----------------------------------------------------------------------------------------------


def _mentions(text: str) -> Act:
    async def act(stage: Stage, name: str, state: str) -> None:
        write(stage.town, somebody(stage.town, name), text, None)

    return act


def _slash(text: str) -> Act:
    async def act(stage: Stage, name: str, state: str) -> Any:
        town, user = stage.town, somebody(stage.town, name)
        grant = {
            "trigger_id": f"trigger.{town.core.now_ts()}",
            "response_url": f"{town.core.base_url}/response/x",
        }
        return await town.deliver(
            payloads.slash_command(town.core.state, user, town.channel(), "/sayso", text, grant)
        )

    return act


def _reacts(name_of: str) -> Act:
    async def act(stage: Stage, name: str, state: str) -> None:
        town = stage.town
        ts = town.say(id_of("vera"), "look at this")
        message = town.core.state.message(town.channel().id, ts)
        assert message is not None
        town.core.react(somebody(town, name), town.channel(), message, name_of, add=True)

    return act


async def _start_view(stage: Stage, user: User, flow: str, **meta: Any) -> View:
    """A form to start a flow, as the bot makes it."""
    town = stage.town
    start = town.bot.views._kinds["start"]
    served = town.bot.library.refresh()[flow]
    body = await start.page_about(served, {"flow": flow, "user": user.id, **meta})  # type: ignore[attr-defined]  # it is `Start`
    view_id = town.core.state.new_id("V")
    return View(view_id, user.id, town.views._with_ids(body, view_id), "0", view_id)


def _fills_in(flow: str, *, about: bool = False) -> Act:
    """Submit the form of a flow: from the Home or a command, or about a message."""

    async def act(stage: Stage, name: str, state: str) -> Any:
        town, user = stage.town, somebody(stage.town, name)
        more: Json = {"about": {"ts": town.say(id_of("vera"), "look at this")}} if about else {}
        view = await _start_view(stage, user, flow, channel=town.channel().id, **more)
        if flow == "needs":
            view.values = {"field:region": {ACTION: {"type": "plain_text_input", "value": "eu"}}}
        return await town.deliver(payloads.view_submission(town.core.state, user, view, "trigger"))

    return act


def _home_button(flow: str) -> Act:
    """Press the flow's button on the Home, and choose the channel in the form."""

    async def act(stage: Stage, name: str, state: str) -> Any:
        town, user = stage.town, somebody(stage.town, name)
        view = await _start_view(stage, user, flow)
        chosen = {"type": "conversations_select", "selected_conversation": town.channel().id}
        view.values = {**view.values, "where": {"where": chosen}}
        return await town.deliver(payloads.view_submission(town.core.state, user, view, "trigger"))

    return act


def _shortcut(stage_flow: str) -> Act:
    """Use the shortcut on a message, choose the flow, and start it."""

    async def act(stage: Stage, name: str, state: str) -> Any:
        town, user = stage.town, somebody(stage.town, name)
        ts = town.say(id_of("vera"), "look at that")
        message = town.core.state.message(town.channel().id, ts)
        assert message is not None
        trigger = town.views.new_trigger(user)
        grant = {"trigger_id": trigger, "response_url": f"{town.core.base_url}/response/x"}
        for view in town.views.stack(user.id):
            town.views.remove(view)
        await town.deliver(
            payloads.message_shortcut(
                town.core.state, user, town.channel(), message, SHORTCUT, grant, town.core.now_ts()
            )
        )
        await town.settle()
        opened = next(iter(town.views.stack(user.id)), None)
        if opened is None:
            return None
        element = opened.body["blocks"][0]["element"]
        index = next(
            n for n, one in enumerate(element["options"]) if stage_flow in one["text"]["text"].lower()
        )
        chosen = {"type": "static_select", "selected_option": element["options"][index]}
        opened.values = {"flow": {"flow": chosen}}
        answer = await town.deliver(payloads.view_submission(town.core.state, user, opened, trigger))
        assert answer is not None
        form = View(opened.id, user.id, town.views._with_ids(answer["view"], opened.id), "1", opened.id)
        return await town.deliver(payloads.view_submission(town.core.state, user, form, trigger))

    return act


def _from_ci(flow: str) -> Act:
    return at_terminal(
        lambda place, stage: start_flow_command(
            place, flow, "#ops", [], None, wait=0.0, as_json=True, key=None
        )
    )


STARTED = ("session:start",)


def _starts(flow: str, word: str, action: str) -> list[Door]:
    return [
        Door("mention", action, _mentions(f"@sayso {flow}"), STARTED, "start"),
        Door("mention with run", action, _mentions(f"@sayso run {flow}"), STARTED, "start"),
        Door("words behind a mention", action, _mentions(f"@sayso please {flow}"), STARTED, "start"),
        Door("words in the channel", action, _mentions(f"{flow} is down"), STARTED, "overheard"),
        Door("slash command", f"{action} from outside", _slash(f"run {flow}"), STARTED, "start"),
        Door("reaction", f"{action} from outside", _reacts(word), STARTED, "start"),
        Door("Home button", f"{action} from outside", _home_button(flow), STARTED, "start"),
        Door("form", f"{action} from outside", _fills_in(flow), STARTED, "start"),
        Door(
            "shortcut", f"{action} from outside", _shortcut(flow.removesuffix("ly") + "ly"), STARTED, "start"
        ),
        Door("form about a message", f"{action} from outside", _fills_in(flow, about=True), STARTED, "start"),
        Door("start-flow", f"{action} from CI", _from_ci(flow), STARTED, "cli"),
    ]


STARTS: dict[str, list[Door]] = {
    "openly": _starts("openly", "rotating_light", "start"),
    "closely": _starts("closely", "lock", "start as listed"),
    "needs": [Door("slash form", "start from outside", _fills_in("needs"), STARTED, "start")],
}
