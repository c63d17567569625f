"""One worker of a fleet: a process with an engine and a dispatcher, which can die, freeze and be cut off."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

from engine.journal.records import Consumed, InboxRow, OutboxRow
from engine.language.codec import Json, decode
from engine.language.errors import SessionError
from engine.nodes.runtime.effects import before_effect
from engine.nodes.runtime.runner import Completed, Interrupted, NodeContext
from engine.run.dispatcher import Dispatcher, RowHandler
from engine.run.engine import Engine
from engine.storage.fence import Signs
from engine.storage.lanes import LIMIT_SECONDS
from engine.storage.postgres_workers import BEAT_SECONDS
from tests.simulation.fleet.poster import Poster
from tests.simulation.timeline import SimLoop
from tests.simulation.writer import InlineWriter
from tests.support.engine import ANA, everybody
from tests.support.releases import NEWER, of_release

if TYPE_CHECKING:
    from tests.simulation.fleet.world import FleetWorld


class FleetWriter(InlineWriter):
    """A writer after each of whose transactions those of others can come."""

    def _carry_out(self) -> None:
        if not self._jobs or not self._life.lives("before a transaction"):
            return
        self._next(self._jobs)
        if self._life.lives("after a transaction") and self._jobs:
            self._life.loop.call_later(self._life.delay(), self._carry_out)


class FleetWakeups:
    """Wake-ups of one worker. Those of others come as the world brings them."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def notify(self) -> None:
        """Something became ready."""
        self.event.set()

    async def wait(self, seconds: float | None) -> None:
        """Return at the next wake-up, or after so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self.event.wait()
        except TimeoutError:
            return
        self.event.clear()


class Worker:
    """A process. `release` is the schema that it writes and the newest that it reads."""

    def __init__(self, world: FleetWorld, number: int, release: int) -> None:
        self.world, self.number, self.release = world, number, release
        self.loop = SimLoop(world.timeline)
        self.loop.drowsy = True
        self.loop.set_exception_handler(self._unhandled)
        self.dead = self.frozen = self.cut_off = False
        self.signs = Signs(LIMIT_SECONDS / 2, lambda: world.timeline.now)
        self._beaten = float("-inf")
        self.spell = 0
        """Counts the times in which nothing is heard of it, and those in which something is."""
        self.hands: dict[str, str] = {}
        """The lanes in which it handles a row now."""
        self._serial = self._points = 0
        self._fate: tuple[int, str] | None = world.fate()
        self.poster: Poster | None = None
        with of_release(self.release):
            self.store = world.server.open(self)
            self.writer = FleetWriter(self, self.store)
            self.main = self.loop.create_task(self._serve())

    def _unhandled(self, loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
        if not self.dead:
            self.world.trouble(f"{about.get('message')}: {about.get('exception')!r}")

    # --- running -------------------------------------------------------------------------------------------

    def due(self) -> float | None:
        """When it has something to do; None for never."""
        if self.dead or self.frozen:
            return None
        return self.world.timeline.now if self.loop._ready else self.loop.due()  # type: ignore[attr-defined]  # BaseEventLoop's

    def slice(self) -> None:
        """Do all that can be done at this moment."""
        with of_release(self.release):
            self.loop.run_forever()
        if self.main.done() and not self.dead:
            error = None if self.main.cancelled() else self.main.exception()
            self.world.note(f"{self.number} ended {type(error).__name__}")
            self.die()

    async def _serve(self) -> None:
        self.engine = Engine(
            self.store,
            policy=everybody,
            runners={"shell": self._shell},
            home=self.world.folder,
            label="bot",
            now=self.world.now,
            steady=self.loop.time,
            entropy=self._entropy,
            writer=self.writer,
        )
        handlers: dict[str, RowHandler] = {"start": self._start}
        self.dispatcher = Dispatcher(self.engine, handlers=handlers, wakeups=FleetWakeups())
        handled = self.dispatcher._handlers
        handled.update({kind: self._watched(handler) for kind, handler in handled.items()})
        if self.release == NEWER:
            handled["newer"] = handled["request"]
        await self.engine.open()
        self.world.note(f"{self.number} serves")
        self.poster = Poster(self)
        posting = asyncio.create_task(self.poster.run())
        try:
            await self.dispatcher.run()
            await self.engine.drain()
        finally:
            posting.cancel()
        await asyncio.gather(posting, return_exceptions=True)
        self.store._owners.close()
        self._beaten = float("-inf")
        self.world.note(f"{self.number} leaves")

    def _entropy(self) -> str:
        self._serial += 1
        seed = f"{self.world.seed}:{self.number}:{self._serial}"
        return hashlib.blake2b(seed.encode(), digest_size=16).hexdigest()

    # --- what it does --------------------------------------------------------------------------------------

    def _watched(self, handler: RowHandler) -> RowHandler:
        async def handle(row: InboxRow) -> bool:
            lane = row.thread_key or row.session_id or row.key
            self.world.handles(self, lane, row)
            self.hands[lane] = row.key
            try:
                if self.world.chance.random() < 0.2:
                    await asyncio.sleep(self.world.chance.uniform(0.0, 2.0))  # somebody is looked up
                return await handler(row)
            finally:
                del self.hands[lane]

        return handle

    async def _start(self, row: InboxRow) -> bool:
        given = decode(row.payload)
        consumed = [Consumed(row.id, "started")]
        try:
            await self.engine.start(
                self.world.flows[given["flow"]],
                {},
                actor=ANA,
                thread={"key": row.thread_key, "channel": given["channel"]},
                session_id=given["session"],
                consumed=consumed,
            )
        except SessionError as error:
            self.world.note(f"{given['session']}: {error}")
            return False
        return True

    async def _shell(self, config: dict[str, Json], ctx: NodeContext) -> Completed | Interrupted:
        """A command: it leaves a mark outside, in no store, and takes a while."""
        await self._point("before a command")
        self.world.ran.append((ctx.session_id, ctx.path, ctx.attempt))
        self.world.note(f"{self.number} runs {ctx.session_id} {ctx.path} {ctx.attempt}")
        await asyncio.sleep(self.world.chance.uniform(0.0, 3.0))
        await self._point("after a command")
        if ctx.aborted.is_set():
            return Interrupted("cut", "left")
        return Completed({"stdout": "", "stderr": "", "exit_code": 0, "seconds": 0})

    async def post(self, row: OutboxRow) -> None:
        """Post a row, unless an earlier attempt has. What was in progress when the process froze is lost."""
        world, spell = self.world, self.spell
        world.posts(self)
        await self._point("before a post")
        await asyncio.sleep(world.chance.uniform(0.0, 1.0))
        if self.spell != spell or self.frozen:
            raise ConnectionError("the connection is gone")
        await before_effect()
        if row.attempts == 0 or row.key not in world.posted:
            world.posted.append(row.key)
            world.note(f"{self.number} posts {row.key}")
        await self._point("after a post")

    # --- what happens to it --------------------------------------------------------------------------------

    def delay(self) -> float:
        """How long a transaction takes to begin."""
        slow = self.world.weather.slow
        return self.world.chance.uniform(0.0, slow) if self.world.chance.random() < 0.5 else 0.0

    def lives(self, what: str) -> bool:
        """Whether the process continues after this point. Here its fate may come."""
        if self.dead or self.frozen:
            return False
        self._points += 1
        if self._fate is not None and self._points == self._fate[0]:
            self.suffer(self._fate[1], what)
        return not self.dead and not self.frozen

    async def _point(self, what: str) -> None:
        if not self.lives(what) and self.dead:
            await self.loop.create_future()

    def spare(self) -> None:
        """Nothing becomes of this worker any more."""
        self._fate = None

    def suffer(self, fate: str, what: str = "") -> None:
        """Die, freeze, or be cut off."""
        if self.dead or self.frozen or self.cut_off:
            return
        world = self.world
        self.spell += 1
        world.note(f"{fate} {self.number} {what}")
        world.suffered[fate] += 1
        if fate == "kill":
            self.die()
            return
        if fate == "freeze":
            self.frozen = True
            self.loop.stop()
        else:
            self.cut_off = True
        world.timeline.after(world.chance.uniform(0.5, 4 * LIMIT_SECONDS), self._recover)

    def _recover(self) -> None:
        """The process wakes up, or the network is back; its next sign of life comes within a second."""
        if self.dead:
            return
        self.world.note(f"{self.number} is back")
        self.frozen = self.cut_off = False
        self.spell += 1
        with of_release(self.release):
            self.writer.go_on()

    def beat(self) -> None:
        """Give a sign of life, and continue doing so."""
        if self.dead:
            return
        if not self.frozen and not self.cut_off:
            self.store._owners.beat()
            self._beaten = self.world.timeline.now
            self.signs.confirmed(self._beaten)
        self.world.timeline.after(BEAT_SECONDS, self.beat)

    @property
    def leased(self) -> bool:
        """Whether nobody may take it for dead."""
        return not self.dead and self.world.timeline.now - self._beaten < LIMIT_SECONDS

    def steady(self) -> bool:
        """Whether what it has taken was taken since its last gap: it was longer ago than anything takes."""
        return self.signs.fresh() and self.signs.unbroken() > LIMIT_SECONDS

    def wake(self) -> None:
        """A wake-up from outside."""
        if self.poster is not None and not self.dead:
            self.loop.call_soon(self.dispatcher.look)
            self.loop.call_soon(self.poster.look)

    def leave(self) -> None:
        """Be asked to end: what is in hand is done first."""
        if self.poster is None:
            self.die()
        else:
            self.loop.call_soon(self.dispatcher.stop)

    def die(self) -> None:
        """End at once."""
        self.dead = True
        self.loop.stop()
        self.world.died(self)

    def bury(self) -> None:
        """Throw the memory away, without letting it do anything more."""
        self.dead = True
        with of_release(self.release):
            self.loop.bury()
        self.store._db.close()
        self.loop.close()
