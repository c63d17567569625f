"""The whole bot and a whole workspace on one event loop: no process, no socket, no disk, no waiting.

The bot is the real one (`bot.serve.main.Bot`): payloads go through Bolt's middleware, calls of the Web API through
slack_sdk. Slack is the local workspace's own model and methods, called directly. With `TownLoop` time passes only
when nothing is left to do, so an hour takes no time; on a real loop programs and loopback servers can be used.
"""

from __future__ import annotations

import asyncio
import json
import time
from asyncio import base_events
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import ServerDisconnectedError
from aiohttp.web import Response as WebResponse
from aiohttp.web import StreamResponse

from bot.compose.environment import Machine
from bot.config.settings import Rate, Rates, Settings
from bot.config.tuning import Tuning
from bot.serve.bolt import SlackApp
from bot.serve.identity import Identity
from bot.serve.main import Bot
from bot.workspace import elements, payloads
from bot.workspace.core import Core, Views
from bot.workspace.interactions import Interactions, People
from bot.workspace.limits import RESPONSE
from bot.workspace.methods.files import content_of
from bot.workspace.methods.files import store as store_file
from bot.workspace.server import WebApi
from bot.workspace.state import Channel, SlackError, User, View, WorkspaceError, copied, default_state
from engine.nodes.runtime.runner import Runner
from engine.nodes.runtime.table import runners
from engine.run.engine import Engine
from engine.storage.open import MemoryStore
from tests.simulation.slack import Response
from tests.simulation.timeline import SimLoop, Timeline
from tests.support.bot import flow_files
from tests.support.inline import InlineWriter
from tests.support.lines import Asked, DirectApp, Pieces, Sockets, TownWire

Json = dict[str, Any]
Result = TypeVar("Result")
EPOCH = 1_790_000_000.0
QUICK_REDELIVERY = (0.0, 0.02, 0.02)
"""Seconds until what was not acknowledged is delivered again."""
LATE = "9999-01-01T00:00:00.000Z"


def play(story: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run a story on a loop in which time passes only when nothing is left to do."""
    loop = SimLoop(Timeline())
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(story())
    finally:
        _bury(loop)
        asyncio.set_event_loop(None)


def _bury(loop: base_events.BaseEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()


@dataclass
class Called:
    """A call of the Web API, and what came of it."""

    method: str
    args: Json
    answer: Json


@dataclass
class Town:
    """A workspace and the bot in it."""

    folder: Path
    settings: Settings
    runners: Mapping[str, Runner] | None = None
    calls: list[Called] = field(default_factory=list)
    refused: list[Called] = field(default_factory=list)
    """Calls that the workspace refused: too long, too many, not known, or no right to."""
    uploads: list[tuple[str, bytes]] = field(default_factory=list)
    alter: Callable[[Json], Json] = lambda body: body
    """What becomes of a payload on its way: what somebody who forges it would send."""
    limited: dict[str, list[int]] = field(default_factory=dict)
    """By method: the next calls are answered with 429, and so many seconds to wait."""

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._simulated = isinstance(loop, SimLoop)
        self._steady = loop.time if self._simulated else time.monotonic
        self.ahead = 0.0
        self.core = Core(default_state(), self.seconds)
        self.core.faults.redelivery_delays = QUICK_REDELIVERY
        self.listens = False
        self.core.sockets = self.sockets = Sockets(self)
        self.core.base_url = "https://slack.test"
        # What a page would show; nobody looks at one here.
        self.core.shown = lambda channel, message: {}  # type: ignore[method-assign]
        self.views = Views(self.core)
        self.hands = Interactions(self.core, self.views)
        self.web = WebApi(self.core, self.views, self.hands)
        self.people = People(self.core, self.views)
        self.store = MemoryStore()
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- time ----------------------------------------------------------------------------------------------

    def seconds(self) -> float:
        """Seconds since 1970: every clock here shows the same."""
        return EPOCH + self.ahead + self._steady()

    # --- the bot -------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start the bot, and wait until it listens. What it had stored before it was stopped is still there."""
        given, self.store = self.runners, self.store.another()
        machine = Machine(
            seconds=self.seconds,
            steady=lambda: self.seconds() - EPOCH,
            session=TownWire(self._call),  # type: ignore[arg-type]  # the part of a session that slack_sdk uses
            open_store=lambda *_: self.store,
            writer=InlineWriter,
            slack_app=self._app,
            tuning=Tuning(
                card_seconds=1.0 if self._simulated else 0.2,
                mark_seconds=3.0 if self._simulated else 0.0,
                poll_seconds=1.0,
            ),
            poll_seconds=5.0 if self._simulated else 0.05,
            started=lambda: None,
            runners=runners if given is None else lambda: given,
        )
        self.bot = Bot(self.settings, machine=machine)
        ready: asyncio.Future[Identity] = asyncio.get_running_loop().create_future()
        self._main = asyncio.create_task(self.bot.run(ready.set_result))
        awaited: list[asyncio.Future[Any]] = [self._main, ready]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if self._main.done():
            await self.ended()

    def _app(self, *args: Any, **given: Any) -> SlackApp:
        self.app = DirectApp(*args, **given)
        self.app.town = self
        return self.app

    @property
    def engine(self) -> Engine:
        """The bot's engine."""
        return self.bot.engine

    async def close(self) -> None:
        """Stop the bot. What it failed with is raised."""
        self.bot.stop()
        await self.ended()

    async def ended(self) -> None:
        """Wait until the bot has ended. What it failed with is raised, once."""
        main, self._main = self._main, asyncio.create_task(asyncio.sleep(0))
        await main

    # --- the way in ----------------------------------------------------------------------------------------

    def soon(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something as soon as there is time."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def deliver(self, body: Json) -> Json | None:
        """Send a payload to the app; what its acknowledgement said. AssertionError where there is none."""
        answer = await self.app.dispatch(self.alter(copied(body)))
        assert answer.status == 200, f"not acknowledged: {answer.status} {answer.body}"
        return json.loads(answer.body) if answer.body else None

    # --- the way out ---------------------------------------------------------------------------------------

    async def _call(self, url: str, args: Json) -> Response:
        await asyncio.sleep(0)
        api = "/api/" in url
        method = url.rsplit("/api/", 1)[-1] if api else url.rsplit("/", 2)[-2]
        kept = {name: value for name, value in args.items() if name != "token"}
        if waits := self.limited.get(method):
            self.calls.append(Called(method, kept, {"ok": False, "error": "ratelimited"}))
            return Response(429, self.calls[-1].answer, {"Retry-After": str(waits.pop(0))})
        if api:
            found = await self._asked(Asked(method, args), self.web.handle)
        elif "/response/" in url:
            method, key = RESPONSE, url.rsplit("/", 1)[-1]
            found = await self._asked(Asked(method, args, key), self.web.respond)
        else:
            found = self._elsewhere(url, args)
        fine = found.status == 200 and found.body == "ok"
        answer = found.body if isinstance(found.body, dict) else {"ok": fine, "error": found.body}
        call = Called(method, kept, answer)
        self.calls.append(call)
        if not answer.get("ok"):
            self.refused.append(call)
        return found

    @staticmethod
    async def _asked(asked: Asked, handle: Callable[[Any], Coroutine[Any, Any, StreamResponse]]) -> Response:
        """Ask the workspace's own Web API, with whatever faults it was told to have."""
        found = await handle(asked)
        assert isinstance(found, WebResponse)
        if asked.aborted:
            raise ServerDisconnectedError
        text = found.text or ""
        body = json.loads(text) if found.content_type == "application/json" else text
        return Response(found.status, body, dict(found.headers))

    def _elsewhere(self, url: str, args: Json) -> Response:
        """A download, or an upload."""
        file_id = url.rsplit("/", 1)[-1]
        if "/files/" in url:
            content = content_of(self.core.state.files[file_id])
            return Response(200, {"ok": True}, content=Pieces(content), content_length=len(content))
        try:
            self.uploads.append((file_id, args.get("content", b"")))
            store_file(self.core.state.files, *self.uploads[-1])
            return Response(200, {"ok": True})
        except SlackError as refusal:
            return Response(404, refusal.body())
        except WorkspaceError as refusal:
            return Response(404, SlackError(refusal.error, refusal.text).body())

    # --- damage --------------------------------------------------------------------------------------------

    def damage_a_journal(self) -> None:
        """Change one bit of the first session's journal, and take away what is known of sessions beside their journals."""
        connection = self.store.database.connect()
        n, body = connection.execute("SELECT n, body FROM journal WHERE seq = 1").fetchone()
        flipped = bytes(body[:20]) + bytes([body[20] ^ 1]) + bytes(body[21:])
        connection.execute("UPDATE journal SET body = ? WHERE n = ?", (flipped, n))
        connection.execute("DELETE FROM snapshots")
        self.engine.sessions._cached.clear()

    # --- waiting -------------------------------------------------------------------------------------------

    def quiet(self) -> bool:
        """Whether nothing is in progress: no payload, no row to handle or to send, no node."""
        views = getattr(self.bot.views, "_tasks", ())
        busy = (
            self._tasks
            or self.sockets.delivering()
            or views
            or self.store.inbox.rows()
            or self.store.outbox.due(now=LATE)
        )
        return not busy and not self.store.sessions.heads(statuses=("running",), limit=1)

    async def settle(self, most: float = 120.0) -> None:
        """Wait until nothing is in progress any more."""
        async with asyncio.timeout(most):
            calm = 0
            while calm < 2:
                await asyncio.sleep(0.25 if self._simulated else 0.005)
                calm = calm + 1 if self.quiet() else 0

    async def until(self, condition: Callable[[], object], most: float = 60.0) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(most):
            while not condition():  # noqa: ASYNC110 - nothing in here signals
                await asyncio.sleep(0.25 if self._simulated else 0.005)

    # --- people --------------------------------------------------------------------------------------------

    def user(self, name: str) -> User:
        """Somebody, by name or id."""
        return self.core.state.user(name)

    def channel(self, name: str = "ops") -> Channel:
        """A channel, by name or id."""
        return self.core.state.channel(name)

    def newcomer(self, name: str, *, member: bool = True, **facts: Any) -> User:
        """One more person, in #ops unless told otherwise."""
        state = self.core.state
        user = User(f"U0LOCAL{name.upper()}", name, name.title(), team_id=state.team_id)
        user.email = f"{name}@example.com"
        for fact, value in facts.items():
            setattr(user, fact, value)
        state.users[user.id] = user
        if member:
            self.channel().members.append(user.id)
        return user

    def say(self, user: str, text: str, root: str | None = None, channel: str = "ops", **more: Any) -> str:
        """Write a message as somebody, as it would arrive; its ts."""
        message = self.core.post(self.user(user), self.channel(channel), text, thread_ts=root, **more)
        return str(message["ts"])

    async def start(self, user: str, line: str, channel: str = "ops") -> str:
        """Start a flow with a mention; the ts of its thread, once it rests."""
        ts = self.say(user, f"<@{self.core.state.bot_user_id}> {line}", channel=channel)
        await self.settle()
        return ts

    def thread(self, root: str, channel: str = "ops") -> list[Json]:
        """The messages of a thread, oldest first."""
        return self.core.state.thread(self.channel(channel).id, root)

    def find(self, root: str, action: str, words: str = "") -> tuple[Json, tuple[Json, Json]]:
        """The newest message of a thread with these words and an element whose action begins so, and the element in its
        block."""
        for message in reversed(self.thread(root)):
            if words not in str(message):
                continue
            for found in elements.elements(message.get("blocks") or []):
                if str(found[1].get("action_id", "")).startswith(action):
                    return message, found
        raise LookupError(f"no {action} in {[message['text'] for message in self.thread(root)]}")

    async def press(self, user: str, message: Json, found: tuple[Json, Json], entry: Any = None) -> None:
        """Press an element of a message, which may be an old version of it."""
        block, element = found
        value = element.get("value") if entry is None else entry
        given = elements.entry_for(element, value)
        ts = self.core.now_ts()
        action = elements.action_for(block, element, given, ts)
        channel = self.channel()
        grant = self.hands._grant(self.user(user), channel, message)
        body = payloads.message_actions(self.core.state, self.user(user), channel, message, action, {}, grant)
        await self.deliver(body)

    def view_of(self, user: str) -> View | None:
        """The modal that somebody looks at."""
        stack = self.views.stack(self.user(user).id)
        return stack[-1] if stack else None

    async def submit(self, user: str, view: View, values: Json) -> Json | None:
        """Submit a modal with these values by block; what the acknowledgement said."""
        view.values = elements.merged(view.values, values)
        trigger = self.views.new_trigger(self.user(user), view)
        return await self.deliver(payloads.view_submission(self.core.state, self.user(user), view, trigger))

    def told(self, user: str, since: int) -> list[Called]:
        """What only this person was told since so many calls."""
        mine = self.user(user).id
        return [
            call
            for call in self.calls[since:]
            if call.method == "chat.postEphemeral" and call.args.get("user") == mine
        ]

    def called(self, method: str, since: int = 0) -> list[Called]:
        """The calls of a method since so many calls."""
        return [call for call in self.calls[since:] if call.method == method]

    def posted(self, since: int) -> list[Called]:
        """What everybody was told since so many calls."""
        return [call for call in self.calls[since:] if call.method in ("chat.postMessage", "chat.update")]


def settings_for(folder: Path, **changed: Any) -> Settings:
    """Settings of a bot that serves `folder/flows`, with limits that no test reaches."""
    plenty = Rate(1_000_000, 60.0)
    given: dict[str, Any] = {
        "home": folder / "home",
        "flows": folder / "flows",
        "database_url": "memory:",
        "bot_token": "xoxb-local-workspace",
        "app_token": "xapp-1-local-workspace",
        "api_url": "https://slack.test/api/",
        "connections": 0,
        "rates": Rates(plenty, plenty, plenty),
        "slack_limits": None,
        **changed,
    }
    return Settings(**given)


@asynccontextmanager
async def town(
    folder: Path,
    flows: Mapping[str, str] | Path,
    *,
    runners: Mapping[str, Runner] | None = None,
    **settings: Any,
) -> AsyncIterator[Town]:
    """A town whose bot serves these flows (name → YAML, or a folder), stopped at the end."""
    (folder / "home").mkdir(exist_ok=True)
    if isinstance(flows, Path):
        settings["flows"] = flows
    flow_files(folder, {} if isinstance(flows, Path) else flows)
    made = Town(folder, settings_for(folder, **settings), runners)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
