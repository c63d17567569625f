"""The ways between a workspace and a bot that live on one event loop: no sockets and no HTTP.

Deliveries are the workspace's own (`bot.workspace.socketmode`), with its acknowledgements, repetitions and faults, over
connections that hand each payload to the app. Calls go to its own Web API (`bot.workspace.server`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from bot.serve.bolt import SlackApp
from bot.workspace.socketmode import Connection, SocketMode
from bot.workspace.state import copied
from tests.simulation.slack import Wire

if TYPE_CHECKING:
    from tests.support.inprocess import Town

Json = dict[str, Any]


class DirectApp(SlackApp):
    """The real receiver without sockets: payloads come by direct calls."""

    town: Town
    reopened = False

    async def connect(self) -> None:
        """Listen."""
        self.town.listens = True
        self.town.sockets.connect()

    async def close(self) -> None:
        """Take nothing more."""
        self._closing = True
        await self.views.close()
        self.town.listens = False
        self.town.sockets.hang_up()

    def reconnected(self) -> bool:
        """Whether a line was opened again since the last call."""
        found, self.reopened = self.reopened, False
        return found


class Line(Connection):
    """A connection of the app: what is sent on it is handed to the app at once."""

    def __init__(self, number: int, sockets: Sockets) -> None:
        self.number, self._sockets = number, sockets
        self.silent = self.deaf = self.draining = False

    async def send(self, frame: Json) -> None:
        """Send a frame; a line that plays dead swallows it."""
        if frame["type"] == "disconnect":
            self.cut()
        elif not (self.silent or self.deaf):
            self._sockets.town.soon(self._sockets.carry(frame))

    def cut(self) -> None:
        """End it. The app connects again as soon as it can."""
        self._sockets.leave(self)
        self._sockets.town.soon(self._sockets.reconnect())


class Sockets(SocketMode):
    """The workspace's Socket Mode, and an app that is called directly instead of WebSockets."""

    def __init__(self, town: Town) -> None:
        core = town.core
        super().__init__(core.state, core.faults, core.changes, core.clock)
        self.town = town
        self._away = False

    @property
    def away(self) -> bool:
        """Whether the app is away: what happens now is not delivered to it."""
        return self._away

    @away.setter
    def away(self, away: bool) -> None:
        self._away = away
        self.hang_up()
        self.connect()

    def connect(self) -> None:
        """Open the lines of an app that is there and listens."""
        if not self._away and not self.connections and self.town.listens:
            self.connections = [Line(number, self) for number in (1, 2)]
            self.changes.touch()

    def hang_up(self) -> None:
        """End all lines."""
        self.connections = []
        self.changes.touch()

    def leave(self, line: Line) -> None:
        """One line has ended."""
        self._leave(line)

    def delivering(self) -> bool:
        """Whether something was not acknowledged yet."""
        return bool(self._tasks)

    async def reconnect(self) -> None:
        """What the SDK does after its connection was lost."""
        while self.faults.away:  # noqa: ASYNC110 - nothing in here signals
            await asyncio.sleep(1.0)
        if not self._away and self.town.listens and len(self.connections) < 2:
            self._serial += 1
            self.connections.append(Line(self._serial, self))
            self.town.app.reopened = True
            self.changes.touch()

    async def carry(self, frame: Json) -> None:
        """Hand a frame to the app; what it acknowledges arrives as its answer."""
        answer = await self.town.app.dispatch(self.town.alter(copied(frame["payload"])))
        if answer.status == 200:
            said = {"payload": json.loads(answer.body)} if answer.body else {}
            self._receive(json.dumps({"envelope_id": frame["envelope_id"], **said}))


class TownWire(Wire):
    """The part of an aiohttp session that slack_sdk and the uploads use."""

    def request(self, verb: str, url: str, **given: Any) -> Any:
        """A request; what is uploaded travels under the name `content`, and the token as an argument."""
        if isinstance(given.get("data"), bytes):
            given["data"] = {"content": given["data"]}
        bearer = str((given.get("headers") or {}).get("Authorization", ""))
        if bearer:
            given["params"] = {**(given.get("params") or {}), "token": bearer.removeprefix("Bearer ")}
        return super().request(verb, url, **given)


class Asked:
    """The part of an HTTP request that the workspace's Web API reads, and of its transport."""

    content_type, method, headers = "", "GET", {}  # type: ignore[var-annotated]  # nobody writes into it
    aborted = False

    def __init__(self, method: str, args: Json, key: str = "") -> None:
        self.match_info, self.query, self.transport = {"method": method, "key": key}, args, self

    async def text(self) -> str:
        """The body."""
        return json.dumps(self.query)

    def abort(self) -> None:
        """Cut the connection."""
        self.aborted = True


class Pieces:
    """A file as it comes over the network."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """The pieces."""
        for start in range(0, len(self._content), size):
            yield self._content[start : start + size]
