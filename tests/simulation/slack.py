"""Simulated Slack: the model of the local workspace, with a network instead of its server.

Calls of the Web API arrive as what slack_sdk would send over HTTP, and are answered by the workspace's own methods.
Events and interactions go to the life that is connected, as Socket Mode would carry them: events again until they are
acknowledged, interactions once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot.wire.manifest import SHORTCUT
from bot.workspace import elements, payloads
from bot.workspace.core import TRIGGER_SECONDS, Core, Trigger, Views
from bot.workspace.interactions import People
from bot.workspace.methods import METHODS
from bot.workspace.methods.call import APP_TOKEN_SCOPES, DEFAULT_SCOPES, Call
from bot.workspace.state import SlackError, View, WorkspaceError, copied, default_state

if TYPE_CHECKING:
    from tests.simulation.world import World

Json = dict[str, Any]
AGAIN = (0.5, 8.0, 20.0)
"""After how many seconds an event is delivered again that was not acknowledged."""
PATIENCE = 3.0
"""Seconds until Slack takes a delivery for not acknowledged."""
CHANNEL = "C0LOCALOPS"


@dataclass
class Delivery:
    """Something that the app should hear of. `taken` once Slack saw an acknowledgement."""

    body: Json
    name: str
    taken: bool = False
    acknowledged: bool = False
    """The bot sent an acknowledgement, whether Slack saw it or not."""
    said: list[Json | None] = field(default_factory=list)
    """What the bot said with each of its acknowledgements, whether Slack saw them or not."""
    heard: Callable[[Json | None], None] | None = None
    """Told of the acknowledgement that Slack saw, and what it says."""


class Sockets:
    """What the workspace tells the app, instead of its Socket Mode server."""

    def __init__(self, slack: Slack) -> None:
        self._slack = slack
        self._serial = 0

    def issue_ticket(self) -> str:
        """A ticket for a socket; nobody connects with it."""
        return "ticket"

    def event(self, event: Json) -> None:
        """Deliver an event, or lose it."""
        self._serial += 1
        self._slack.tell(event, f"Ev{self._serial}")


@dataclass
class Slack:
    """The workspace, its methods, and the way to the bot."""

    world: World
    core: Core = field(init=False)
    views: Views = field(init=False)
    deliveries: list[Delivery] = field(default_factory=list)
    attempts: int = 0
    posted: int = 0
    pressed: dict[str, Json] = field(default_factory=dict)
    """What was pressed, by the response URL of the press."""

    def __post_init__(self) -> None:
        self.core = Core(default_state(), lambda: self.world.slack_seconds())
        self.core.sockets = Sockets(self)  # type: ignore[assignment]  # the part of it that Core uses
        self.core.base_url = "https://slack.test"
        for channel in self.core.state.channels.values():
            if channel.id != CHANNEL and self.core.state.bot_user_id in channel.members:
                channel.members.remove(self.core.state.bot_user_id)
        # What a page would show; nobody looks at one here.
        self.core.shown = lambda channel, message: {}  # type: ignore[method-assign]
        self.views = Views(self.core)

    # --- calls ---------------------------------------------------------------------------------------------

    def respond(self, args: Json) -> Json:
        """Carry out what was posted to a response URL: only a message that was pressed shows it."""
        where = self.pressed.get(args["response_url"])
        if where is None or not args.get("replace_original"):
            return {"ok": True}
        return self.answer("chat.update", {**where, "text": args["text"], "blocks": args["blocks"]})

    def answer(self, method: str, args: Json) -> Json:
        """Carry a call out."""
        granted = frozenset(APP_TOKEN_SCOPES if method.startswith("apps.") else DEFAULT_SCOPES)
        call = Call(method, args, self.core, self.views, granted)
        try:
            known = METHODS[method]
            if known.scope:
                call.need(known.scope)
            return {"ok": True, **known.answer(call)}
        except SlackError as refusal:
            return refusal.body()
        except WorkspaceError as refusal:
            return SlackError(refusal.error, refusal.text).body()

    # --- events --------------------------------------------------------------------------------------------

    def tell(self, event: Json, event_id: str) -> None:
        """Deliver an event to the bot some time from now, again and again until it is acknowledged."""
        world, chance = self.world, self.world.chance
        by_bot = event.get("bot_id") or event.get("message", {}).get("bot_id")
        if by_bot and chance.random() < 0.9:
            return  # what the bot did itself it ignores; a few of these are enough
        state = self.core.state
        body = payloads.event_callback(state, event, event_id, world.slack_seconds())
        delivery = Delivery(body, event_id)
        self.deliveries.append(delivery)
        if chance.random() < world.weather.drop:
            world.note(f"drop {event_id}")
            return
        self._later(delivery, AGAIN)
        if chance.random() < world.weather.twice:
            world.timeline.after(chance.uniform(0.0, 30.0), lambda: self._attempt(delivery, ()))

    def _later(self, delivery: Delivery, again: tuple[float, ...]) -> None:
        # Of one message come two events, and never at the very same moment.
        first = 0.05 * (len(self.deliveries) % 2)
        seconds = first + self.world.chance.uniform(0.0, self.world.weather.late)
        self.world.timeline.after(seconds, lambda: self._attempt(delivery, again))

    def _attempt(self, delivery: Delivery, again: tuple[float, ...]) -> None:
        """Send it to whoever is connected; look later whether it was taken, and send it again if not."""
        if delivery.taken and again:
            return
        self.attempts += 1
        sent = self.world.send(delivery)
        if again:
            wait = again[0] + (PATIENCE if sent else 0.0)
            self.world.timeline.after(wait, lambda: self._again(delivery, again[1:]))

    def _again(self, delivery: Delivery, again: tuple[float, ...]) -> None:
        if not delivery.taken:
            self._attempt(delivery, again)

    def interaction(self, body: Json, name: str) -> Delivery:
        """Deliver a press or a command, once; the person sees whether it was taken."""
        delivery = Delivery(body, name)
        self.deliveries.append(delivery)
        self._later(delivery, ())
        if self.world.chance.random() < self.world.weather.twice:
            self.world.timeline.after(
                self.world.chance.uniform(0.0, 30.0), lambda: self._attempt(delivery, ())
            )
        return delivery

    # --- people --------------------------------------------------------------------------------------------

    def say(
        self, user: str, text: str, thread_ts: str | None = None, files: dict[str, bytes] | None = None
    ) -> str:
        """Write a message as somebody, with files by name; its ts."""
        state = self.core.state
        if files:
            hands = People(self.core, self.views)
            posted = hands.post(state.user(user), state.channels[CHANNEL], text, thread_ts, files=files)
            return str(posted["ts"])
        message = self.core.post(state.user(user), state.channels[CHANNEL], text, thread_ts=thread_ts)
        return str(message["ts"])

    def press(
        self, user: str, message: Json, element: tuple[Json, Json], choice: str | None = None
    ) -> Delivery:
        """Press a button as somebody, or choose something in a menu; the message may be an old version of itself."""
        state = self.core.state
        person, channel = state.user(user), state.channels[CHANNEL]
        block, button = element
        ts = self.core.now_ts()
        entry = elements.entry_for(button, choice or button.get("value"))
        action = elements.action_for(block, button, entry, ts)
        grant = {"trigger_id": f"trigger.{ts}", "response_url": f"{self.core.base_url}/response/{ts}"}
        self.pressed[grant["response_url"]] = {"channel": CHANNEL, "ts": message["ts"]}
        self._may_open(user, grant)
        body = payloads.message_actions(state, person, channel, message, action, {}, grant)
        return self.interaction(body, f"press:{user}:{ts}")

    def command(self, user: str, text: str) -> Delivery:
        """Use the slash command as somebody."""
        state, ts = self.core.state, self.core.now_ts()
        grant = {"trigger_id": f"trigger.{ts}", "response_url": f"{self.core.base_url}/response/{ts}"}
        self._may_open(user, grant)
        body = payloads.slash_command(state, state.user(user), state.channels[CHANNEL], "/sayso", text, grant)
        return self.interaction(body, f"slash:{user}:{ts}")

    def shortcut(self, user: str, message: Json) -> Delivery:
        """Use the shortcut on a message as somebody."""
        state, ts = self.core.state, self.core.now_ts()
        grant = {"trigger_id": f"trigger.{ts}", "response_url": f"{self.core.base_url}/response/{ts}"}
        self._may_open(user, grant)
        person, channel = state.user(user), state.channels[CHANNEL]
        body = payloads.message_shortcut(state, person, channel, message, SHORTCUT, grant, ts)
        return self.interaction(body, f"shortcut:{user}:{ts}")

    def _may_open(self, user: str, grant: Json) -> None:
        person, until = self.core.state.user(user), self.core.clock() + TRIGGER_SECONDS
        self.views.triggers[grant["trigger_id"]] = Trigger(person, until, None)

    def submit(self, view: View) -> Delivery:
        """Submit a modal as it is filled in now; it stays open until the acknowledgement says what becomes of it."""
        state, ts = self.core.state, self.core.now_ts()
        person = state.users[view.user_id]
        body = payloads.view_submission(state, person, view, f"trigger.{ts}")
        return self.interaction(body, f"submit:{person.name}:{ts}")

    def press_in(self, view: View, element: tuple[Json, Json]) -> Delivery:
        """Press a button in a modal."""
        state, ts = self.core.state, self.core.now_ts()
        person = state.users[view.user_id]
        block, button = element
        action = elements.action_for(block, button, elements.entry_for(button, button.get("value")), ts)
        body = payloads.view_actions(state, person, payloads.view_field(state, view), action, f"trigger.{ts}")
        return self.interaction(body, f"inside:{person.name}:{ts}")

    # --- what can be seen ----------------------------------------------------------------------------------

    def thread(self, root: str) -> list[Json]:
        """The messages of a thread, oldest first."""
        return self.core.state.thread(CHANNEL, root)

    def by_bot(self) -> list[Json]:
        """All messages of the bot."""
        bot = self.core.state.bot_user_id
        stored = self.core.state.messages.get(CHANNEL, {})
        return [message for message in stored.values() if message.get("user") == bot]


def by_keys(messages: Iterable[Json]) -> dict[str, Json]:
    """Messages by their keys; the card also by that of the question which is on it."""
    found = {key_of(message): message for message in messages}
    return {asked_key(message): message for message in found.values()} | found


def asked_key(message: Json) -> str:
    """The outbox key of the question that a message of the bot shows: its own, or that of one on a card. Empty where it
    shows none, and for a copy that was disarmed."""
    ids = [str(block.get("block_id") or "") for block in message.get("blocks") or [] if key_of(message)]
    return next((key for key in (key_of(message), *ids) if key.startswith("prompt:")), "")


def key_of(message: Json) -> str:
    """The outbox key in a message's metadata; empty for one without, and for a copy that was disarmed."""
    metadata = message.get("metadata") or {}
    if metadata.get("event_type") != "sayso_post":
        return ""
    return str(metadata["event_payload"]["key"])


# --- the wire ----------------------------------------------------------------------------------------------


class Wire:
    """The part of an aiohttp session that slack_sdk uses."""

    closed = False

    def __init__(self, call: Callable[[str, Json], Any]) -> None:
        self._call = call

    def request(self, verb: str, url: str, **given: Any) -> _Exchange:
        """A request, to be used with `async with`."""
        return _Exchange(self._call, url, given)


class _Exchange:
    def __init__(self, call: Callable[[str, Json], Any], url: str, given: Json) -> None:
        self._call, self._url, self._given = call, url, given

    async def __aenter__(self) -> Response:
        args: Json = {}
        for name in ("params", "json"):
            args.update(self._given.get(name) or {})
        data = self._given.get("data")
        args.update(json.loads(data) if isinstance(data, str) else data or {})
        found = await self._call(self._url, copied(args))
        assert isinstance(found, Response)
        return found

    async def __aexit__(self, *problem: object) -> None:
        return None


@dataclass
class Response:
    """An HTTP answer as slack_sdk reads it."""

    status: int
    body: Json | str
    headers: dict[str, str] = field(default_factory=dict)
    content: Any = None
    """The bytes of a file, to be read with `iter_chunked`."""
    content_length: int | None = None

    @property
    def content_type(self) -> str:
        """JSON, unless it is the page of a broken server."""
        return "application/json" if isinstance(self.body, dict) else "text/plain"

    async def json(self) -> Any:
        """The body."""
        await asyncio.sleep(0)
        return self.body

    async def text(self) -> str:
        """The body as text."""
        return self.body if isinstance(self.body, str) else json.dumps(self.body)

    async def read(self) -> bytes:
        """The body as bytes."""
        return (await self.text()).encode()
