"""One life of the bot, from its start to its death: the real `Bot` on a simulated machine.

Every commit, every call of the Web API and every acknowledgement is a *point*, before and after it: there the process
can die. What is dead does nothing any more: its inputs and outputs never return, its memory is thrown away, and what
it had committed is all that the next life finds.

Instead of dying it can also *freeze*: it freezes, its sessions count as nobody's, the next life takes them over,
and then it wakes up and continues for a while with what it had in hand. Its network is gone, its commits are not.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
from slack_bolt.request.async_request import AsyncBoltRequest

from bot.compose.environment import Machine
from bot.config.settings import Settings
from bot.config.tuning import Tuning
from bot.serve.bolt import SlackApp
from bot.serve.main import Bot
from bot.workspace.methods.files import content_of
from engine.language.codec import Json
from engine.nodes.runtime.runner import Completed, Interrupted, NodeContext, Runner
from engine.storage.sqlite import SqliteStore, open_sqlite
from engine.storage.store import Store
from tests.simulation.slack import Delivery, Response, Wire, key_of
from tests.simulation.timeline import SimLoop
from tests.simulation.writer import InlineWriter

if TYPE_CHECKING:
    from tests.simulation.world import World

CALL_SECONDS = 0.02
PIECE = 1000
"""Bytes of a file that come at once."""
AWAKE = 8.0
"""Seconds for which a process that was frozen continues."""
KEY = b"the key of the simulation"
_KEY = aiohttp.client_reqrep.ConnectionKey("slack.test", 443, True, True, None, None, None)


class SimSlackApp(SlackApp):
    """The real receiver without sockets: envelopes come by direct calls."""

    life: Life
    _generation: int | None = None

    async def connect(self) -> None:
        """From now on the world can send."""
        await self.life.point("connect")
        self.life.connected = True
        self._generation = self.life.world.generation

    async def close(self) -> None:
        """Take nothing more."""
        self._closing = True

    def reconnected(self) -> bool:
        """Whether there was a gap."""
        if self._generation is None:
            return False
        changed = self._generation != self.life.world.generation
        self._generation = self.life.world.generation
        return changed


class _Pieces:
    """A file as it comes over the network, piece by piece: the connection may end, or break, in between."""

    def __init__(self, life: Life, content: bytes) -> None:
        self._life = life
        self._content = content

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """The pieces."""
        world = self._life.world
        for start in range(0, len(self._content), PIECE):
            await self._life.point("while a file comes")
            await asyncio.sleep(self._life.delay())
            if world.chance.random() < world.weather.answer_lost:
                world.note("cut file")
                if world.chance.random() < 0.5:
                    raise aiohttp.ClientPayloadError("the connection was closed")
                return
            yield self._content[start : start + PIECE]


class Life:
    """The bot as one process."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.loop = SimLoop(world.timeline)
        self.connected = False
        self.dead = False
        self.fault: BaseException | None = None
        self.store: SqliteStore | None = None
        self.frozen = False
        self._main: asyncio.Task[None] | None = None
        self._writer: InlineWriter | None = None
        self._waiting: list[asyncio.Future[None]] = []
        """What is waited for in vain: a loop keeps no hold of it."""
        weather = world.weather
        self._points = 0
        self._kill_at = 0
        self._aim = (0, 0)
        self._heard = 0
        if weather.kills > 0:
            weather.kills -= 1
            self._kill_at = world.chance.randint(1, weather.kill_within)
            if world.chance.random() < 0.6:
                # Most of what a kill can spoil is what is being handled: so aim at it; in some runs at what comes of it,
                # which is a dozen inputs and outputs later.
                later = 12 if world.seed % 10 == 5 else 0
                self._aim = (world.chance.randint(1, 5), world.chance.randint(1, 12) + later)
                self._kill_at = 0
        self._serial = 0

    def spare(self) -> None:
        """This life does not end in a kill any more."""
        self._kill_at, self._aim = 0, (0, 0)

    # --- points --------------------------------------------------------------------------------------------

    def lives(self, what: str) -> bool:
        """Whether the process is still alive after this point. Here it may die."""
        if self.dead:
            return False
        self._points += 1
        self.world.points += 1
        if self._points == self._kill_at:
            if self.world.chance.random() < self.world.weather.freezes:
                self._freeze(what)
            else:
                self.world.note(f"kill {what}")
                self.world.kills += 1
            self.die()
            return False
        return True

    async def point(self, what: str) -> None:
        """The same for who can wait: whoever waits in a dead process waits forever."""
        if not self.lives(what) or (self.frozen and what != "after a command"):
            self._waiting.append(self.loop.create_future())
            await self._waiting[-1]

    def die(self) -> None:
        """End the process at once."""
        self.dead, self.connected = True, False
        self.loop.stop()

    # --- freezing ------------------------------------------------------------------------------------------

    def _freeze(self, what: str) -> None:
        """Stand still from now on, as an owner that others take for dead."""
        world = self.world
        world.note(f"freeze {what}")
        world.frozen += 1
        self.frozen = True
        if self.store is not None:
            self.store._owners.close()
        world.sleepers.append(self)
        world.timeline.after(world.chance.uniform(1.0, 40.0), self._wake)

    def _wake(self) -> None:
        """Continue, while another life runs."""
        if self not in self.world.sleepers:
            return
        self.world.note(f"wake {self.number}")
        self.dead = False
        self.loop.drowsy = True
        if self._writer is not None:
            self._writer.go_on()
        self._until = self.world.timeline.now + AWAKE
        self._slice()

    def _slice(self) -> None:
        """Do all that can be done at this moment; continue when the next thing of this process is due."""
        if self.dead:
            return
        with self._alone():
            self.loop.run_forever()
        due = self.loop.due()
        if self.dead or due is None or due > self._until:
            self.end()
        else:
            self.world.timeline.after(max(0.0, due - self.world.timeline.now), self._slice)

    def end(self) -> None:
        """The end of a process that was frozen."""
        if self in self.world.sleepers:
            self.world.sleepers.remove(self)
            with self._alone():
                self._bury()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Run this loop inside a turn of another one: their threads would be different."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        asyncio.set_event_loop(self.loop)
        try:
            yield
        finally:
            asyncio.set_event_loop(outer)
            asyncio._set_running_loop(outer)

    def delay(self) -> float:
        """How long something takes now."""
        slow = self.world.weather.slow
        return self.world.chance.uniform(0.0, slow) if slow and self.world.chance.random() < 0.3 else 0.0

    # --- running -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Live until death, or until the world has ended."""
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(lambda loop, context: self.world.trouble(str(context.get("message"))))
        self._main = self.loop.create_task(self._serve())
        try:
            self.loop.run_forever()
        finally:
            if self.frozen:
                asyncio.set_event_loop(None)
            else:
                self._bury()

    async def _serve(self) -> None:
        try:
            await self._bot().run(lambda identity: self.world.ready(self.number))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.fault = error
            self.world.note(f"ended {type(error).__name__}")
        self.die()

    def _bury(self) -> None:
        """Throw the memory away, without letting it do anything more."""
        self.dead, self.connected = True, False
        self.loop.bury()
        if self.store is not None:
            self.store.close()
        self.loop.close()
        asyncio.set_event_loop(None)

    def _bot(self) -> Bot:
        world = self.world
        settings = Settings(
            home=world.home,
            flows=world.home,
            database_url="",
            bot_token="xoxb-local-workspace",
            app_token="xapp-1-local-workspace",
            api_url="https://slack.test/api/",
            connections=0,
        )
        machine = Machine(
            seconds=world.seconds,
            steady=self.loop.time,
            entropy=self._entropy,
            session=Wire(self._call),  # type: ignore[arg-type]  # the part of a session that slack_sdk uses
            open_store=self._open,
            writer=self._make_writer,
            runners=self._runners,
            slack_app=self._slack_app,
            tuning=Tuning(poll_seconds=5.0, jitter=world.chance.random),
            poll_seconds=5.0,
            started=lambda: None,
        )
        bot = Bot(settings, machine=machine)
        bot.library = world.library
        return bot

    def _make_writer(self, store: Store) -> InlineWriter:
        self._writer = InlineWriter(self, store)
        return self._writer

    def _slack_app(self, *args: Any, **given: Any) -> SlackApp:
        SimSlackApp.life = self
        self.app = SimSlackApp(*args, **given)
        self.app.life = self
        return self.app

    def _open(self, url: str, key: bytes | None, *_: object) -> Store:
        store = open_sqlite(self.world.database, key=KEY, encryption_keys=self.world.encryption_keys)
        # A kill is simulated above the disk, so the disk need not be waited for.
        store._db.raw.pragma("synchronous", "OFF")
        self.store = store
        return store

    def _entropy(self) -> str:
        self._serial += 1
        seed = f"{self.world.seed}:{self.number}:{self._serial}"
        return hashlib.blake2b(seed.encode(), digest_size=16).hexdigest()

    # --- the way in ----------------------------------------------------------------------------------------

    def deliver(self, delivery: Delivery) -> None:
        """Let the receiver have an envelope."""
        self._heard += 1
        if self._heard == self._aim[0]:
            self._kill_at = self._points + self._aim[1]
        self.loop.create_task(self._deliver(delivery))

    async def _deliver(self, delivery: Delivery) -> None:
        world = self.world
        request = AsyncBoltRequest(mode="socket_mode", body=delivery.body)
        answer = await self.app.app.async_dispatch(request)
        if answer.status != 200:
            world.note(f"not acknowledged {delivery.name}")
            return
        await self.point("before an acknowledgement")
        delivery.acknowledged = True
        said = json.loads(answer.body) if answer.body else None
        delivery.said.append(said)
        lost = world.chance.random() < world.weather.ack_lost
        world.note(f"{'lost ' if lost else ''}acknowledgement {delivery.name}")
        if not lost:
            first, delivery.taken = not delivery.taken, True
            if first and delivery.heard is not None:
                delivery.heard(said)
        await self.point("after an acknowledgement")

    # --- the way out ---------------------------------------------------------------------------------------

    async def _call(self, url: str, args: dict[str, Any]) -> Response:
        world = self.world
        is_file = "/files/" in url
        method = url.rsplit("/api/", 1)[-1] if "/api/" in url else "file" if is_file else "response_url"
        if method == "response_url":
            args = {**args, "response_url": url}
        await self.point(f"before {method}")
        await asyncio.sleep(CALL_SECONDS + self.delay())
        if self.frozen:
            await self.point(f"while {method} was under way")
        weather, chance = world.weather, world.chance
        if chance.random() < weather.unreachable:
            world.note(f"unreachable {method}")
            raise aiohttp.ClientConnectorError(_KEY, OSError(111, "Connection refused"))
        if chance.random() < weather.limited:
            world.note(f"limited {method}")
            headers = {"Retry-After": str(chance.randint(1, 8))}
            return Response(429, {"ok": False, "error": "ratelimited"}, headers)
        if chance.random() < weather.broken:
            world.note(f"broken {method}")
            return Response(503, "upstream is down")
        if is_file:
            content = content_of(world.slack.core.state.files[url.rsplit("/", 1)[1]])
            return Response(200, "", content=_Pieces(self, content), content_length=len(content))
        if chance.random() < weather.answer_lost:
            return await self._lost(method, args)
        return await self._done(method, args)

    async def _done(self, method: str, args: dict[str, Any]) -> Response:
        found = self._effect(method, args)
        await self.point(f"after {method}")
        return Response(200, found, self.world.headers(method))

    async def _lost(self, method: str, args: dict[str, Any]) -> Response:
        """The effect happens, now or a little later, and nobody hears of it."""
        world, chance = self.world, self.world.chance
        # A message that is edited late would hide what came after it; nobody can prevent that, so it is not tried.
        if chance.random() < world.weather.appears_late and method not in ("chat.update", "response_url"):
            world.timeline.after(chance.uniform(0.5, 9.0), lambda: self._effect(method, args))
        else:
            self._effect(method, args)
        world.note(f"answer lost {method}")
        await self.point(f"after {method}")
        if chance.random() < 0.3:
            await asyncio.sleep(30.0)
            raise TimeoutError
        if chance.random() < 0.5:
            return Response(500, "it was done all the same")
        raise aiohttp.ServerDisconnectedError

    def _effect(self, method: str, args: dict[str, Any]) -> dict[str, Any]:
        if method == "response_url":
            found = self.world.slack.respond(args)
        else:
            found = self.world.slack.answer(method, args)
        what = key_of(args) or args.get("ts") or args.get("channel") or ""
        self.world.note(f"{method} {what} -> {found.get('ts') or found.get('error') or 'ok'}")
        return found

    # --- work ----------------------------------------------------------------------------------------------

    def _runners(self) -> Mapping[str, Runner]:
        return {"shell": self._shell}

    async def _shell(self, config: dict[str, Json], ctx: NodeContext) -> Completed | Interrupted:
        """A command: it leaves a mark outside, in no store, and takes a while."""
        await self.point("before a command")
        self.world.ran.append((ctx.session_id, ctx.path))
        self.world.given.append((ctx.session_id, ctx.path, config["run"]))
        self.world.note(f"command {ctx.path}")
        await asyncio.sleep(self.world.chance.uniform(0.0, 3.0))
        await self.point("after a command")
        if ctx.aborted.is_set():
            return Interrupted("cut", "left")
        return Completed({"stdout": "", "stderr": "", "exit_code": 0, "seconds": 0})
