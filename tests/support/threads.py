"""Many threads that wait, for reading missed messages in them: sessions without journals, and the local workspace's own
history, answered over no network with a latency. Channels are numbered from 0.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp.web import Response as WebResponse

from bot.handlers.catchup import CatchUp
from bot.inbound import decisions
from bot.wire.budget import Budget
from bot.wire.client import bot_client
from bot.workspace.core import Core, Views
from bot.workspace.interactions import Interactions
from bot.workspace.server import WebApi
from bot.workspace.state import Channel, default_state
from engine.journal.records import Head
from engine.run.stored import utc_now
from engine.storage.open import MemoryStore
from tests.simulation.slack import Response, Wire
from tests.support.inline import InlineWriter
from tests.support.lines import Asked

Json = dict[str, Any]
BEGAN = 1_790_000_000.0
LATENCY = 0.1
"""Seconds that a call takes."""


class Waiting(MemoryStore):
    """A store whose sessions are only heads."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Head] = []
        self.sessions.heads = self._heads  # type: ignore[method-assign]

    def _heads(
        self,
        *,
        statuses: Sequence[str] = (),
        thread_key: str | None = None,
        limit: int | None = 100,
        before: str | None = None,
    ) -> list[Head]:
        return [head for head in self.waiting if thread_key in (None, head.thread_key)]


@dataclass
class Threads:
    """A workspace that enforces Slack's limits, with threads in which a question stands, and the calls that were made."""

    channels: int = 1
    calls: list[tuple[float, str, Json]] = field(default_factory=list)
    fails: dict[str, str] = field(default_factory=dict)
    """By method the error with which it is refused."""
    refused: int = 0
    """Calls that were too many."""

    def __post_init__(self) -> None:
        self.core = Core(default_state(), self.seconds)
        self.core.base_url = "https://slack.test"
        self.core.faults.limits.factor = 1.0
        self.state = self.core.state
        for channel in self.state.channels.values():
            channel.members = []
        self.ids = [f"C0WAITING{number}" for number in range(self.channels)]
        for name in self.ids:
            members = [self.state.bot_user_id, "U0LOCALANA", "U0LOCALBEN"]
            self.state.channels[name] = Channel(name, name.lower(), members=members)
            self.state.messages[name] = {}
        views = Views(self.core)
        self.web = WebApi(self.core, views, Interactions(self.core, views))
        self.store = Waiting()
        self.writer = InlineWriter(self.store)
        self.writer.start()
        self.home = decisions.Home(self.state.team_id, self.state.app_id, self.state.bot_user_id)

    def seconds(self) -> float:
        """Seconds since 1970."""
        return BEGAN + asyncio.get_running_loop().time()

    def wire(self) -> Wire:
        """What the client calls through."""
        return Wire(self._call)

    async def _call(self, url: str, args: Json) -> Response:
        method = url.rsplit("/api/", 1)[-1]
        self.calls.append((asyncio.get_running_loop().time(), method, args))
        await asyncio.sleep(LATENCY)
        if method in self.fails:
            return Response(200, {"ok": False, "error": self.fails[method]})
        answer = await self.web.handle(Asked(method, {"token": self.state.bot_token, **args}))  # type: ignore[arg-type]
        assert isinstance(answer, WebResponse)
        self.refused += answer.status == 429
        return Response(answer.status, json.loads(answer.text or ""), dict(answer.headers))

    # --- what is there -------------------------------------------------------------------------------------

    def say(
        self, channel: int, at: float, user: str = "U0LOCALANA", root: str | None = None, text: str = "hm"
    ) -> str:
        """A message from so many seconds ago; its ts. Messages of a channel are put in by their time."""
        name = self.ids[channel]
        while (ts := f"{BEGAN - at:.6f}") in self.state.messages[name]:
            at -= 0.001
        message: Json = {"type": "message", "user": user, "text": text, "ts": ts, "team": self.state.team_id}
        if user == self.state.bot_user_id:
            message |= {"bot_id": self.state.bot_id, "app_id": self.state.app_id}
        if root is not None:
            message["thread_ts"] = root
            self._counted(self.state.messages[name][root], user, ts)
        self.state.messages[name][ts] = message
        return ts

    def _counted(self, root: Json, user: str, ts: str) -> None:
        users = list(dict.fromkeys([*root.get("reply_users", []), user]))
        root.update(thread_ts=root["ts"], reply_count=root.get("reply_count", 0) + 1, reply_users=users)
        root.update(reply_users_count=len(users), latest_reply=ts)

    def wait(self, channel: int, at: float, *, talk: bool = True) -> str:
        """A thread that begins so many seconds ago and waits: a person answered one question, with `talk`, and the bot asked
        the next. All of that is known. Its key."""
        root = self.say(channel, at)
        key = f"{self.state.team_id}:{self.ids[channel]}:{root}"
        if talk:
            self.say(channel, at - 1, root=root)
            self.store.marks.move(f"known:{key}", f"{BEGAN - at + 2:.6f}")
        self.say(channel, at - 2, self.state.bot_user_id, root)
        asked = f"{root}"
        self.store.waiting.append(
            Head(f"s{len(self.store.waiting)}", "talk", "d", None, key, "paused", "waiting", 1, 1, None, asked, asked, None, None)
        )  # fmt: skip
        return key

    def reply(self, key: str, at: float, text: str = "missed") -> str:
        """A reply that was not delivered; its ts."""
        _, name, root = key.split(":")
        return self.say(self.ids.index(name), at, "U0LOCALBEN", root, text)

    def ordered(self) -> None:
        """Put all messages in the order of their times, as the workspace keeps them."""
        for name, messages in self.state.messages.items():
            self.state.messages[name] = dict(sorted(messages.items(), key=lambda entry: float(entry[0])))

    # --- reading -------------------------------------------------------------------------------------------

    def catchup(self, **given: Any) -> CatchUp:
        """What reads."""
        client = bot_client(self.state.bot_token, "https://slack.test/api/", self.wire(), Budget())  # type: ignore[arg-type]
        return CatchUp(
            client, self.writer, self.home, now=utc_now, taken=lambda: None, clock=self.seconds, **given
        )

    async def read(self, catchup: CatchUp) -> float:
        """There was a gap: read all that is due; how many seconds it took."""
        self.ordered()
        before = self.seconds()
        await catchup.begin()
        await catchup.run()
        return self.seconds() - before

    def called(self, method: str) -> list[Json]:
        """The arguments of the calls of a method."""
        return [args for _, name, args in self.calls if name == method]

    def found(self) -> set[str]:
        """What was found, by ts."""
        return {row.key.rsplit(":", 1)[1] for row in self.store.inbox.rows(limit=None)}
