"""HTTP servers of the bot against clients that connect and send no request, over real sockets."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from bot.compose import listening
from bot.compose.listening import Listener, raise_file_limit

GET = b"GET / HTTP/1.1\r\nHost: bot\r\n\r\n"
BODY = b"POST / HTTP/1.1\r\nHost: bot\r\nContent-Length: 9\r\n\r\n"
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Site:
    """A listener whose answers wait until they are let go."""

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()
        app = web.Application()
        app.add_routes([web.get("/", self._answer), web.post("/", self._answer)])
        self.listener = Listener(app, stop_seconds=0.1)
        self._clients: list[Client] = []

    async def _answer(self, request: web.Request) -> web.Response:
        await request.read()
        self.asked.set()
        await self.go.wait()
        return web.Response(text="ok")

    async def start(self) -> None:
        """Listen."""
        self.host, self.port = await self.listener.start("127.0.0.1", 0)

    async def client(self, data: bytes = b"") -> Client:
        """Somebody who connects and sends this much."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        self._clients.append((reader, writer))
        writer.write(data)
        await writer.drain()
        return reader, writer

    async def stop(self) -> None:
        """Stop, and let the clients go."""
        self.go.set()
        await self.listener.stop()
        for _, writer in self._clients:
            writer.close()


async def ended(client: Client) -> bool:
    """Return once the connection was ended by the other side."""
    try:
        async with asyncio.timeout(5):
            return await client[0].read() == b""
    except ConnectionResetError:
        return True


async def status(client: Client) -> bytes:
    """The status of the next answer."""
    async with asyncio.timeout(5):
        head = await client[0].readuntil(b"\r\n\r\n")
        await client[0].readexactly(2)
        return head.split()[1]


@asynccontextmanager
async def listens() -> AsyncIterator[Site]:
    """One that listens."""
    found = Site()
    await found.start()
    try:
        yield found
    finally:
        await found.stop()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """One that listens with the bounds that it has."""
    async with listens() as found:
        yield found


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: bot\r\nX: "])
async def test_headers_that_do_not_come_end_the_connection(
    site: Site, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends nothing, or the beginning of a request, is let go after a while."""
    monkeypatch.setattr(listening, "HEADER_SECONDS", 0.01)
    assert await ended(await site.client(begun))


async def test_a_second_request_has_its_time_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was used is let go when its next request begins and does not come."""
    client = await site.client(GET)
    assert await status(client) == b"200"
    monkeypatch.setattr(listening, "HEADER_SECONDS", 0.01)
    client[1].write(b"GET / HT")
    assert await ended(client)


async def test_an_answer_takes_what_it_takes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is for the headers of a request, and not for its answer or for the next request."""
    monkeypatch.setattr(listening, "HEADER_SECONDS", 0.02)
    site.go.clear()
    client = await site.client(GET)
    await site.asked.wait()
    late = await site.client()
    assert await ended(late), "as long has passed"
    site.go.set()
    assert await status(client) == b"200"
    late = await site.client()
    assert await ended(late), "as long has passed"
    client[1].write(GET)
    assert await status(client) == b"200"


async def test_above_the_cap_whoever_has_waited_longest_has_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are answered however many connections stand open without one, and those in progress are not ended."""
    monkeypatch.setattr(listening, "MOST_CONNECTIONS", 4)
    async with listens() as site:
        site.go.clear()
        asking = await site.client(GET)
        await site.asked.wait()
        silent = [await site.client(b"GET") for _ in range(10)]
        site.go.set()
        assert await status(asking) == b"200"
        assert await status(await site.client(GET)) == b"200"
        for client in silent[:6]:
            assert await ended(client)


async def test_requests_under_way_count_to_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all connections have a request in progress, a new one is ended; also where requests came in one piece."""
    monkeypatch.setattr(listening, "MOST_CONNECTIONS", 2)
    async with listens() as site:
        first = await site.client(GET + GET)
        assert [await status(first) for _ in range(2)] == [b"200"] * 2
        site.asked.clear()
        site.go.clear()
        first[1].write(GET + GET)
        await site.asked.wait()
        site.asked.clear()
        second = await site.client(GET)
        await site.asked.wait()
        assert await ended(await site.client(GET))
        site.go.set()
        assert [await status(first), await status(first), await status(second)] == [b"200"] * 3


async def test_above_the_cap_bodies_that_do_not_come_have_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody holds up others with many requests that begin and do not continue."""
    monkeypatch.setattr(listening, "MOST_CONNECTIONS", 2)
    async with listens() as site:
        slow = [await site.client(BODY + b"x") for _ in range(3)]
        assert await ended(slow[0])
        assert await status(await site.client(GET)) == b"200"
        assert await ended(slow[1])


async def test_a_body_that_does_not_come_is_answered(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender is told what was late."""
    monkeypatch.setattr(listening, "BODY_SECONDS", 0.01)
    reader, _ = await site.client(BODY + b"x")
    assert (await reader.readline()).split()[1] == b"408"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01 no HTTP\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: bot\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: bot\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"POST / HTTP/1.1\r\nHost: bot\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde",
        b"POST / HTTP/1.1\r\nHost: bot\r\nContent-Encoding: br\r\nContent-Length: 5\r\n\r\nabcde",
    ],
)
async def test_what_cannot_be_read_is_answered_and_not_logged(
    site: Site, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody who proves nothing writes no tracebacks into the log."""
    reader, _ = await site.client(sent)
    assert (await reader.readline()).split()[1] == b"400"
    assert caplog.records == []


async def test_a_client_that_goes_in_its_request_is_not_logged(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that ends within a body is nothing to look at."""
    over, tell = asyncio.Event(), site.listener.closed
    monkeypatch.setattr(
        site.listener, "closed", lambda transport: (tell(transport), transport.is_closing() and over.set())
    )
    _, writer = await site.client(BODY + b"x")
    writer.close()
    async with asyncio.timeout(5):
        await over.wait()
    await site.listener.stop()
    assert caplog.records == []


async def test_a_fault_of_the_bot_is_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Only faults of clients are left out."""
    site.asked.set = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    reader, _ = await site.client(GET)
    assert (await reader.readline()).split()[1] == b"500"
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("soft", "hard", "wanted"),
    [
        (1024, 524_288, 65_536),
        (1024, 4096, 4096),
        (100_000, 524_288, None),
        (1024, resource.RLIM_INFINITY, 65_536),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_the_limit_of_files_is_raised(
    soft: int, hard: int, wanted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start takes what the system allows, within reason, and lowers nothing."""
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: given.append(limits))
    raise_file_limit()
    assert given == ([] if wanted is None else [(wanted, hard)])


async def test_few_files_are_few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a process may open few files, connections take a quarter of them at most."""
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (12, 12))
    async with listens() as site:
        clients = [await site.client() for _ in range(5)]
        assert all([await ended(client) for client in clients[:2]])
