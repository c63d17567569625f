"""HTTP servers of a process. Idle clients cannot exhaust descriptors: there is a cap on connections, and a time limit
for the headers and for the body of a request. Malformed requests are answered, and not logged, since they are not
faults of this process.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

log = logging.getLogger("sayso.http")

MOST_CONNECTIONS = 256
"""Most connections of a server; fewer if the process may open few files."""
HEADER_SECONDS = 10.0
"""Seconds for the headers of a request to arrive."""
BODY_SECONDS = 10.0
"""Seconds for its body to arrive."""
_KEPT_SECONDS = 30.0
"""Seconds for which a connection is kept for another request."""
_BACKLOG = 32
"""Most connections accepted at once."""
_MOST_FILES = 65_536


def raise_file_limit() -> None:
    """Let this process open as many files as the system allows it, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def wanted_ports(file: Path, usual: int) -> tuple[int, ...]:
    """The ports for a page: the one that its home remembers, else the usual one; where that is taken any free one."""
    try:
        return int(file.read_text()), 0
    except (OSError, ValueError):
        return usual, 0


def remember_port(file: Path, port: int) -> None:
    """Keep the first port of a page in its home, so that its address stays the same over restarts."""
    if file.parent.is_dir() and not file.exists():
        with suppress(OSError):
            file.write_text(f"{port}\n")


def _is_our_fault(record: logging.LogRecord) -> bool:
    fault = record.exc_info[1] if record.exc_info else None
    return not isinstance(fault, HttpProcessingError | web.RequestPayloadError | ConnectionError)


log.addFilter(_is_our_fault)


class Listener:
    """An application at one address."""

    def __init__(self, app: web.Application, stop_seconds: float) -> None:
        """`stop_seconds`: how long a stop waits for requests in progress."""
        app.middlewares.insert(0, self._answering)
        self._runner = web.AppRunner(
            app, access_log=None, logger=log, shutdown_timeout=stop_seconds, keepalive_timeout=_KEPT_SECONDS
        )
        self._server: asyncio.Server | None = None
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = MOST_CONNECTIONS if files < 0 else min(MOST_CONNECTIONS, files // 4)
        self._busy: set[asyncio.BaseTransport] = set()
        self._coming: dict[asyncio.BaseTransport, None] = {}
        """Connections whose request body is incomplete."""
        self._idle: dict[asyncio.BaseTransport, asyncio.TimerHandle | None] = {}
        """Connections without a request in progress, with the timeout of their headers."""

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; the address. Raises `OSError`."""
        await self._runner.setup()
        make = self._runner.server
        assert make is not None
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(make(), self), host, port, backlog=_BACKLOG
        )
        self._server = server
        bound: tuple[str, int] = server.sockets[0].getsockname()[:2]
        return bound

    async def stop(self) -> None:
        """Stop listening, and let requests in progress finish."""
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    @web.middleware
    async def _answering(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        transport = request.transport
        if transport is None or transport not in self._idle:
            return await handler(request)
        self.closed(transport)
        try:
            self._coming[transport] = None
            await _read(request)
            self._coming.pop(transport, None)
            self._busy.add(transport)
            return await handler(request)
        finally:
            self.closed(transport)
            if not transport.is_closing():
                self._idle[transport] = None

    # -- callbacks of connections

    def opened(self, transport: asyncio.Transport) -> None:
        """Register a connection. Above the cap the one that has been without a request for longest is closed, then the
        one whose body has been incomplete for longest."""
        waited = next(iter([*self._idle, *self._coming]), transport)
        self._idle[transport] = None
        self.heard(transport)
        if len(self._idle) + len(self._coming) + len(self._busy) > self._most:
            self.closed(waited)
            assert isinstance(waited, asyncio.Transport)
            waited.abort()

    def heard(self, transport: asyncio.Transport) -> None:
        """Something came, or is due to: outside of a request it is the beginning of one."""
        if self._idle.get(transport, self) is None:
            timer = asyncio.get_running_loop().call_later(HEADER_SECONDS, transport.abort)
            self._idle[transport] = timer

    def closed(self, transport: asyncio.BaseTransport) -> None:
        """A connection is gone."""
        self._busy.discard(transport)
        self._coming.pop(transport, None)
        timer = self._idle.pop(transport, None)
        if timer is not None:
            timer.cancel()


async def _read(request: web.Request) -> None:
    """Read the body, which the request then has. Raises `HTTPException`."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            await request.read()
    except TimeoutError as error:
        late = f"The body did not arrive within {BODY_SECONDS:g} seconds.\n"
        raise web.HTTPRequestTimeout(text=late) from error
    except (
        RuntimeError,
        ConnectionError,
        web.RequestPayloadError,
    ) as error:  # the first for a connection that is closed
        raise web.HTTPBadRequest(text="The body cannot be read.\n") from error


class _Connection(asyncio.Protocol):
    """Hands everything of a connection on to aiohttp, and tells the listener."""

    def __init__(self, inner: web.RequestHandler, listener: Listener) -> None:
        self._inner, self._listener = inner, listener
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._inner.connection_made(transport)
        self._listener.opened(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.closed(self._transport)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._listener.heard(self._transport)
        self._inner.data_received(data)

    def eof_received(self) -> None:
        self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
