"""A network between a process and Postgres that a test can cut: a TCP proxy before a server's socket file, or before a pooler.

While it is `cut` nothing passes in either direction and nobody is told, as through a firewall that forgot its connections; what
was sent then arrives when it is mended. While it is `deaf` the notifications of the server are left out, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg.conninfo import conninfo_to_dict

_UNTYPED = 4
_NOTIFICATION = b"A"


class Link:
    """Connections of one process to a server."""

    def __init__(self, url: str) -> None:
        there = conninfo_to_dict(url)
        self._there = there
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.deaf = False
        self.statements = 0
        """How many came from the process."""
        self.url = ""

    async def open(self, listener: socket.socket | None = None) -> asyncio.Server:
        """Listen, where this socket does or else on any port; `url` is where."""
        sock = listener or socket.create_server(("127.0.0.1", 0))
        # asyncio sets it itself only for a socket that knows its protocol: else each answer waits for forty milliseconds.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = await asyncio.start_server(self._accept, sock=sock)
        here = {"host": "127.0.0.1", "port": server.sockets[0].getsockname()[1]}
        self.url = make_url({**self._there, **here})
        return server

    def cut(self) -> None:
        """Let nothing pass."""
        self._whole.clear()

    def mend(self) -> None:
        """Let all pass again."""
        self._whole.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._whole.wait()
            theirs, to_them = await self._connect()
            pumps = (self._pump(reader, to_them, first=True), self._pump(theirs, writer, first=False))
            tasks = [asyncio.create_task(pump) for pump in pumps]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await self._whole.wait()
            for task in tasks:
                task.cancel()
            to_them.close()
        writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = str(self._there["host"]), self._there.get("port") or 5432
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, int(str(port)))

    def close(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, first: bool) -> None:
        from_client = first
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await reader.readexactly(_UNTYPED if first else _UNTYPED + 1)
                body = await reader.readexactly(int.from_bytes(head[-_UNTYPED:], "big") - _UNTYPED)
                kind, first = head[:1], False
                await self._whole.wait()
                if from_client:
                    self.statements += kind in (b"Q", b"E")
                elif self.deaf and kind == _NOTIFICATION:
                    continue
                writer.write(head + body)
                await writer.drain()


def make_url(parts: dict[str, object]) -> str:
    """A URL of these parts, without what an open network would ask for."""
    user, name = parts.get("user") or "postgres", parts.get("dbname") or "postgres"
    plain = "sslmode=disable&gssencmode=disable"
    return f"postgresql://{user}@{parts['host']}:{parts['port']}/{name}?{plain}"


@asynccontextmanager
async def linked(url: str, listener: socket.socket | None = None) -> AsyncIterator[Link]:
    """A link to the server at this URL; see `Link.open`."""
    link = Link(url)
    server = await link.open(listener)
    try:
        yield link
    finally:
        server.close()
        link.close()
