"""The http node, against a real server on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from engine.nodes.runtime.http import _redirected, http, prepare
from engine.nodes.runtime.runner import Refusal
from engine.nodes.runtime.secrets import Resolver
from tests.nodes.nodekit import (
    ENCODINGS,
    Context,
    bare,
    canaries,
    failure,
    interruption,
    output,
    rest_of,
)
from tests.support.listening import listening

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """A context in a folder of its own."""
    return Context(tmp_path)


class Seen:
    """The requests that a server got, and where it listens."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], str]] = []
        self.arrived = asyncio.Event()
        self.url = ""

    def header(self, name: str, index: int = -1) -> str | None:
        """A header of one request."""
        return self.requests[index][2].get(name.lower())


@contextlib.asynccontextmanager
async def serve(handler: Handler | None = None) -> AsyncIterator[Seen]:
    """A server that keeps what it got and answers as `handler` says; without one, with 200 and `ok`."""
    seen = Seen()

    async def handle(request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        seen.requests.append((request.method, request.path_qs, headers, await request.text()))
        seen.arrived.set()
        return await handler(request) if handler else web.Response(text="ok")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    async with listening(app) as seen.url:
        yield seen


@contextlib.asynccontextmanager
async def raw_server(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A server that speaks as `talk` says, be it HTTP or not."""
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def answering(**fields: Any) -> Handler:
    """A handler that always answers so."""

    async def handle(_: web.Request) -> web.StreamResponse:
        return web.Response(**fields)

    return handle


# --- what is sent --------------------------------------------------------------------------------------


async def test_a_get_gives_status_headers_body_and_json(context: Context) -> None:
    """A JSON answer arrives as exactly status, headers, body and json."""
    async with serve(answering(text='{"a": [1, "é"]}', content_type="application/json")) as seen:
        got = output(await http({"url": f"{seen.url}/x"}, context.build()))
    assert set(got) == {"status", "headers", "body", "json"}
    assert got["status"] == 200
    assert got["headers"]["content-type"].startswith("application/json")
    assert got["body"] == '{"a": [1, "é"]}'
    assert got["json"] == {"a": [1, "é"]}


async def test_headers_query_and_json_are_sent(context: Context) -> None:
    """Headers, query (lists repeated, null left out) and a JSON body reach the server."""
    async with serve() as seen:
        config = {
            "method": "post",
            "url": f"{seen.url}/deploy?a=1",
            "headers": {"X-Region": "eu", "X-Count": 3},
            "query": {"q": "a b&c", "n": [1, 2], "none": None},
            "json": {"service": "api", "n": 1},
        }
        output(await http(config, context.build()))
    method, path, headers, body = seen.requests[0]
    assert (method, path) == ("POST", "/deploy?a=1&q=a+b%26c&n=1&n=2")
    assert (headers["x-region"], headers["x-count"]) == ("eu", "3")
    assert headers["content-type"] == "application/json"
    assert json.loads(body) == {"service": "api", "n": 1}


async def test_text_body_is_sent_as_utf8(context: Context) -> None:
    """A text body goes out as UTF-8 text unless the flow names another type."""
    async with serve() as seen:
        output(await http({"method": "PUT", "url": seen.url, "body": "héllo"}, context.build()))
        config = {"method": "PUT", "url": seen.url, "body": "<a/>", "headers": {"content-type": "text/xml"}}
        output(await http(config, context.build()))
    assert seen.requests[0][3] == "héllo"
    assert seen.header("Content-Type", 0) == "text/plain; charset=utf-8"
    assert seen.header("Content-Type", 1) == "text/xml"


async def test_idempotency_key_goes_with_everything_that_changes_something(context: Context) -> None:
    """Non-GET requests carry the node's key; GET and HEAD do not; a key of the flow's own stands."""
    async with serve() as seen:
        for method in ("GET", "HEAD", "POST", "DELETE"):
            output(await http({"method": method, "url": seen.url}, context.build()))
        own = {"method": "POST", "url": seen.url, "headers": {"Idempotency-Key": "mine"}}
        output(await http(own, context.build()))
    keys = [seen.header("Idempotency-Key", index) for index in range(5)]
    assert keys == [None, None, *["session-0badcafe:rollout[2]/apply"] * 2, "mine"]


async def test_credentials_in_the_url_become_a_header(context: Context) -> None:
    """A user and password in the URL are sent as Basic authorization and shown nowhere."""
    async with serve(answering(status=500)) as seen:
        failed = failure(await http({"url": seen.url.replace("//", "//me:pa55word@")}, context.build()))
    assert seen.header("Authorization") == "Basic bWU6cGE1NXdvcmQ="
    assert "pa55word" not in repr(failed)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"url": "ftp://127.0.0.1/x"},
        {"url": "file:///etc/passwd"},
        {"url": "127.0.0.1/x"},
        {"url": "http://"},
        {"url": "http://h:99999/"},
        {"url": "http://127.0.0.1:1/", "method": "GET / HTTP/1.1\r\nX: y"},
        {"url": "http://127.0.0.1:1/", "headers": {"X": "a\r\nY: b"}},
        {"url": "http://127.0.0.1:1/", "headers": {"X\n": "a"}},
        {"url": "http://127.0.0.1:1/", "headers": {"Content-Length": "3"}},
    ],
)
async def test_a_request_that_cannot_be_sent_is_a_failure(context: Context, config: dict[str, Any]) -> None:
    """Other schemes, line breaks in headers and configs without meaning fail as `invalid` before anything is sent."""
    assert failure(await http(config, context.build())).type == "invalid"


# --- what comes back -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [300, 302, 400, 404, 500, 503])
async def test_status_of_300_or_more_is_a_failure_that_holds_the_output(
    context: Context, status: int
) -> None:
    """An error status fails as `http_status` with the whole output in its details."""
    async with serve(answering(status=status, text='{"why": "no"}', content_type="application/json")) as seen:
        failed = failure(await http({"method": "POST", "url": f"{seen.url}/a?b=1"}, context.build()))
    assert failed.type == "http_status"
    assert f"/a was answered with {status}" in failed.message
    assert (failed.details["status"], failed.details["json"]) == (status, {"why": "no"})


async def test_ok_status_decides_what_is_a_failure(context: Context) -> None:
    """Only a listed status completes, an error or a redirect included."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return web.Response(status=int(request.path[1:]), headers={"Location": "/200"})

    async with serve(handle) as seen:
        for status in (404, 302):
            config = {"url": f"{seen.url}/{status}", "ok_status": [404, 302]}
            assert output(await http(config, context.build()))["status"] == status
        failed = failure(await http({"url": f"{seen.url}/200", "ok_status": [201]}, context.build()))
    assert (failed.type, failed.details["status"]) == ("http_status", 200)


@pytest.mark.parametrize(
    "body",
    ["NaN", '{"a": Infinity}', "1e999", '{"a":', "", '"\\ud800"', "{'a': 1}", "[" * 5000],
)
async def test_what_is_not_strict_json_is_null(context: Context, body: str) -> None:
    """A body that only claims to be JSON keeps its text and has null as json."""
    async with serve(answering(text=body, content_type="application/json")) as seen:
        got = output(await http({"url": seen.url}, context.build()))
    assert (got["json"], got["body"]) == (None, body)


async def test_an_integer_that_64_bits_cannot_hold_fails_the_node(context: Context) -> None:
    """A number in the answer that would become another one is told, and the text is kept."""
    body = '{"id": 18446744073709551616}'
    async with serve(answering(text=body, content_type="application/json")) as seen:
        failed = failure(await http({"url": seen.url}, context.build()))
    assert (failed.type, failed.details["json"], failed.details["body"]) == ("inexact", None, body)
    assert "18446744073709551616 does not fit in 64 bits" in failed.message


async def test_json_is_parsed_where_the_content_type_says_so(context: Context) -> None:
    """`+json` types are JSON, with or without a byte order mark; JSON in a text answer is text."""
    async with serve(answering(body=b'\xef\xbb\xbf{"a":1}', content_type="application/problem+json")) as seen:
        assert output(await http({"url": seen.url}, context.build()))["json"] == {"a": 1}
    async with serve(answering(text='{"a":1}')) as seen:
        assert output(await http({"url": seen.url}, context.build()))["json"] is None


async def test_an_answer_that_does_not_fit_its_schema_fails_the_node(context: Context) -> None:
    """What flows read of an answer is as `schema` says, or the node fails and says where it is not."""
    schema = {"type": "object", "properties": {"errors": {"type": "number"}}, "required": ["errors"]}
    async with serve(answering(text='{"errors": "many"}', content_type="application/json")) as seen:
        failed = failure(await http({"url": seen.url, "schema": schema}, context.build()))
    assert failed.type == "schema"
    assert "errors" in failed.message
    async with serve(answering(text='{"errors": 0.5}', content_type="application/json")) as seen:
        assert output(await http({"url": seen.url, "schema": schema}, context.build()))["json"] == {
            "errors": 0.5
        }


@pytest.mark.parametrize(
    ("body", "charset", "text"),
    [
        ("é".encode("latin-1"), "iso-8859-1", "é"),
        ("日本".encode("shift_jis"), "shift_jis", "日本"),
        ("é".encode(), "no-such-charset", "é"),
        (b"\xff\xc3\xa9", "utf-8", "\ufffdé"),
        (b"61", "hex", "61"),
        (b"abc", "punycode", "abc"),
        (b"\\ud800", "unicode_escape", "\\ud800"),
    ],
)
async def test_text_is_decoded_by_its_charset(context: Context, body: bytes, charset: str, text: str) -> None:
    """The body is decoded as the answer says; an unknown or unfit charset is read as UTF-8."""
    headers = {"Content-Type": f"text/plain; charset={charset}"}
    async with serve(answering(body=body, headers=headers)) as seen:
        assert output(await http({"url": seen.url}, context.build()))["body"] == text


async def test_repeated_headers_are_joined(context: Context) -> None:
    """Header names are small, repeated values joined, cookies by lines."""

    async def handle(_: web.Request) -> web.StreamResponse:
        response = web.Response()
        for name, value in [("X-A", "1"), ("X-A", "2"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]:
            response.headers.add(name, value)
        return response

    async with serve(handle) as seen:
        headers = output(await http({"url": seen.url}, context.build()))["headers"]
    assert (headers["x-a"], headers["set-cookie"]) == ("1, 2", "a=1\nb=2")


async def test_an_endless_body_is_read_no_further_than_its_limit(context: Context) -> None:
    """A body beyond `max_body` is cut there, the connection is closed, and the node fails with the part."""
    stopped = asyncio.Event()
    sent = 0

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while sent < 10**9:
                await response.write(b"x" * 65536)
                sent += 65536
        finally:
            stopped.set()
        return response

    async with serve(handle) as seen:
        failed = failure(await http({"url": seen.url, "max_body": 1000}, context.build()))
        await asyncio.wait_for(stopped.wait(), 20)
    assert failed.type == "body_too_large"
    assert failed.details["body"] == "x" * 1000 + "\n[… cut here: the body is longer than 1000 bytes …]"
    assert sent < 50_000_000


async def test_a_body_of_exactly_the_limit_is_whole(context: Context) -> None:
    """`max_body` bytes are no bytes too many."""
    async with serve(answering(text="x" * 1000)) as seen:
        assert output(await http({"url": seen.url, "max_body": 1000}, context.build()))["body"] == "x" * 1000
        assert failure(await http({"url": seen.url, "max_body": 999}, context.build()))


async def test_the_limit_counts_unpacked_bytes(context: Context) -> None:
    """A small packed body that unpacks to 200 MB is cut like any other."""
    packed = gzip.compress(b"\0" * 200_000_000, 1)
    async with serve(answering(body=packed, headers={"Content-Encoding": "gzip"})) as seen:
        failed = failure(await http({"url": seen.url, "max_body": 10}, context.build()))
    assert failed.type == "body_too_large"


# --- redirects -----------------------------------------------------------------------------------------


def redirecting(status: int, target: str) -> Handler:
    """Redirects everything but /end."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path == "/end":
            return web.Response(text="end")
        return web.Response(status=status, headers={"Location": target})

    return handle


SECRET_HEADERS = {
    "Authorization": {"$secret_text": ["Bearer ", {"$secret": "TOKEN"}]},
    "X-Api-Key": "literal-key",
    "Cookie": "session=1",
    "Accept": "text/html",
}


async def test_credentials_do_not_cross_hosts(context: Context) -> None:
    """A redirect to another host, port or scheme takes no header along that may be a credential."""
    context.secrets["TOKEN"] = "canary-token"
    async with serve() as other, serve(redirecting(302, f"{other.url}/end")) as seen:
        output(await http({"url": seen.url, "headers": SECRET_HEADERS}, context.build()))
    assert seen.header("Authorization") == "Bearer canary-token"
    sent = other.requests[0][2]
    assert sent["accept"] == "text/html"
    assert not {"authorization", "x-api-key", "cookie"} & set(sent)
    assert "canary" not in repr(sent)


async def test_credentials_stay_on_the_same_host(context: Context) -> None:
    """A redirect on the same origin keeps them, also when it is relative."""
    context.secrets["TOKEN"] = "canary-token"
    async with serve(redirecting(302, "/end")) as seen:
        output(await http({"url": f"{seen.url}/a/b", "headers": SECRET_HEADERS}, context.build()))
    assert seen.requests[1][1] == "/end"
    assert seen.header("Authorization", 1) == "Bearer canary-token"


async def test_credentials_in_a_redirect_are_not_used(context: Context) -> None:
    """A server cannot make us log in somewhere by putting a user into a Location."""
    async with serve() as other:
        target = other.url.replace("//", "//u:p@") + "/end"
        async with serve(redirecting(302, target)) as seen:
            output(await http({"url": seen.url}, context.build()))
    assert other.header("Authorization") is None


@pytest.mark.parametrize(
    ("status", "method", "followed"),
    [
        (301, "POST", False),
        (302, "POST", False),
        (303, "POST", False),
        (303, "PUT", False),
        (303, "DELETE", False),
        (307, "POST", True),
        (308, "PUT", True),
        (302, "DELETE", True),
        (301, "HEAD", True),
        (303, "GET", True),
        (303, "HEAD", True),
    ],
)
async def test_a_redirect_keeps_method_and_body_or_fails(
    context: Context, status: int, method: str, followed: bool
) -> None:
    """A redirect on the same host is followed with the same method, body and key; one that would change them fails, names
    the new address, and is not tried again."""
    async with serve(redirecting(status, "/end")) as seen:
        outcome = await http({"url": seen.url, "method": method, "body": "data"}, context.build())
    if followed:
        assert output(outcome)["status"] == 200
        assert [(got[0], got[3]) for got in seen.requests] == [(method, "data")] * 2
        assert len({got[2].get("idempotency-key") for got in seen.requests}) == 1
        return
    failed = failure(outcome)
    assert (failed.type, failed.details) == ("redirect", {"retryable": False})
    assert f"{seen.url}/end" in failed.message
    assert len(seen.requests) == 1


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize(
    "config", [{}, {"method": "HEAD"}, {"body": "x"}, {"method": "POST"}, {"method": "DELETE"}]
)
async def test_only_a_request_that_just_reads_goes_to_another_host(
    context: Context, config: dict[str, Any], pinned: bool
) -> None:
    """A redirect to another host, or another port, is followed by a read without a body alone, and never where people
    approved the address or an agent calls it."""
    async with serve() as other, serve(redirecting(307, f"{other.url}/end?t=1")) as seen:
        outcome = await http({"url": seen.url, **config}, context.build(pinned=pinned))
    if not pinned and config in ({}, {"method": "HEAD"}):
        assert output(outcome)["status"] == 200
        return
    assert f"{other.url}/end," in failure(outcome).message
    assert other.requests == []


@pytest.mark.parametrize(
    ("begin", "target", "followed"),
    [
        ("http://example.com/a", "https://example.com/a", True),
        ("http://example.com:80/a", "https://EXAMPLE.com:443/b", True),
        ("http://example.com:8080/a", "https://example.com/a", False),
        ("http://example.com/a", "https://www.example.com/a", False),
        ("http://example.com/a", "//example.com/b", True),
        ("https://example.com/a", "http://example.com/a", False),
        ("https://example.com/a/b", "../c", True),
        ("https://example.com/a", "https://u:p@example.com/a", True),
        ("https://example.com/a", "https://example.com:8443/a", False),
    ],
)
def test_what_counts_as_the_same_host(begin: str, target: str, followed: bool) -> None:
    """A POST follows a redirect to the same scheme, host and port, or from http to https of it."""
    request = prepare({"url": begin, "method": "POST"}, "key", Resolver(str))
    if followed:
        assert _redirected(request, 307, target).url.user is None
        return
    with pytest.raises(Refusal, match="is not followed"):
        _redirected(request, 307, target)


def test_a_read_does_not_leave_encryption() -> None:
    """A GET is not redirected from https to http."""
    request = prepare({"url": "https://example.com/a"}, "key", Resolver(str))
    with pytest.raises(Refusal, match="not encrypted"):
        _redirected(request, 302, "http://example.com/a")


async def test_five_redirects_are_followed_and_not_six(context: Context) -> None:
    """A chain of five ends well, a sixth redirect fails."""

    async def handle(request: web.Request) -> web.StreamResponse:
        left = int(request.path[1:])
        return web.Response(status=302, headers={"Location": f"/{left - 1}"}) if left else web.Response()

    async with serve(handle) as seen:
        assert output(await http({"url": f"{seen.url}/5"}, context.build()))["status"] == 200
        assert len(seen.requests) == 6
        assert failure(await http({"url": f"{seen.url}/6"}, context.build())).type == "redirect"
        assert len(seen.requests) == 12


@pytest.mark.parametrize(
    ("target", "type_"),
    [
        ("http://169.254.169.254/latest/meta-data", "address_refused"),
        ("http://[::ffff:a9fe:a9fe]/", "address_refused"),
        ("http://2852039166/", "redirect"),
        ("file:///etc/passwd", "redirect"),
        ("gopher://127.0.0.1:1/", "redirect"),
        ("//[::1]@", "redirect"),
    ],
)
async def test_redirects_are_checked_again(context: Context, target: str, type_: str) -> None:
    """A redirect reaches no address and no scheme that the flow itself could not."""
    async with serve(redirecting(302, target)) as seen:
        assert failure(await http({"url": seen.url}, context.build())).type == type_


# --- addresses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "[fe80::1%25lo]",
        "[::ffff:a9fe:a9fe]",
        "2852039166",
        "0xA9FEA9FE",
        "0251.0376.0251.0376",
        "169.254.43518",
        "１６９.254.169.254",
    ],
)
async def test_link_local_and_metadata_addresses_are_refused(context: Context, host: str) -> None:
    """In whatever notation, these addresses are not reached."""
    failed = failure(await http({"url": f"http://{host}/latest"}, context.build(timeout=20)))
    assert failed.type == "address_refused"


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Make every name resolve to these addresses in turn; returns the names that were looked up."""
    asked: list[str] = []

    def lookup(host: str, port: int, *args: Any, **kwargs: Any) -> list[Any]:
        asked.append(host)
        address = addresses[min(len(asked), len(addresses)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return asked


async def test_the_resolved_address_counts(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """A harmless name that resolves to a metadata address is refused, and the error says how to allow it."""
    asked = resolve_to(monkeypatch, "169.254.169.254")
    failed = failure(await http({"url": "http://innocent.example/"}, context.build()))
    assert asked == ["innocent.example"]
    assert failed.type == "address_refused"
    assert "allow_hosts" in failed.message


async def test_a_name_that_changes_its_address_is_checked_each_time(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that resolves well first and badly after a redirect is refused then."""
    async with serve(redirecting(302, "/again")) as seen:
        resolve_to(monkeypatch, "127.0.0.1", "169.254.169.254")
        url = seen.url.replace("127.0.0.1", "rebinding.example")
        failed = failure(await http({"url": url}, context.build()))
    assert len(seen.requests) == 1
    assert failed.type == "address_refused"


async def test_private_hosts_are_reached(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback, by address and by name, is not a problem."""
    async with serve() as seen:
        output(await http({"url": seen.url}, context.build()))
        resolve_to(monkeypatch, "127.0.0.1")
        output(await http({"url": seen.url.replace("127.0.0.1", "db.internal")}, context.build()))
    assert len(seen.requests) == 2


async def test_proxies_of_the_environment_are_not_used(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy could reach any address for us, so none is used."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with serve() as seen:
        output(await http({"url": seen.url}, context.build()))


# --- what goes wrong -----------------------------------------------------------------------------------


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_no_connection_is_a_failure(context: Context, method: str) -> None:
    """When nothing can have been sent, any method fails as `connect`, and says once where nobody is."""
    port = free_port()
    config = {"method": method, "url": f"http://127.0.0.1:{port}/"}
    failed = failure(await http(config, context.build()))
    assert failed.type == "connect"
    assert failed.message == f"{method} http://127.0.0.1:{port}/: nothing listens at 127.0.0.1:{port}"


async def test_an_unknown_name_is_a_failure(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that does not resolve fails as `connect` and names the host."""

    def lookup(*args: Any, **kwargs: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    failed = failure(await http({"method": "POST", "url": "http://nowhere.example/"}, context.build()))
    assert failed.type == "connect"
    assert failed.message.endswith(": there is no host nowhere.example")


async def test_tls_that_fails_is_before_the_request(context: Context) -> None:
    """A server that speaks no TLS has not seen the request."""
    async with serve() as seen:
        config = {"method": "POST", "url": seen.url.replace("http:", "https:")}
        failed = failure(await http(config, context.build()))
        assert failed.type == "connect"
        assert "does not speak TLS correctly" in failed.message
    assert seen.requests == []


@contextlib.asynccontextmanager
async def silent() -> AsyncIterator[Seen]:
    """A server that takes the request and does not answer."""
    release = asyncio.Event()

    async def handle(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    async with serve(handle) as seen:
        try:
            yield seen
        finally:
            release.set()


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"])
async def test_timeout_is_a_failure_of_what_reads_and_an_interruption_of_what_changes(
    context: Context, method: str
) -> None:
    """GET and HEAD can have changed nothing; of other methods nobody knows whether it happened."""
    async with silent() as seen:
        outcome = await http({"method": method, "url": seen.url}, context.build(timeout=0.3))
    if method in ("GET", "HEAD"):
        assert failure(outcome).type == "timeout"
    else:
        assert interruption(outcome).reason == "timeout"
    assert len(seen.requests) == 1


async def test_timeout_before_the_request_was_sent_is_a_failure(context: Context) -> None:
    """A POST that got stuck in the TLS handshake has changed nothing, so it is not an interruption."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with raw_server(talk) as url:
        config = {"method": "POST", "url": url.replace("http:", "https:")}
        assert failure(await http(config, context.build(timeout=0.3))).type == "connect"


async def test_timeout_counts_while_the_body_trickles(context: Context) -> None:
    """A server that never stops answering slowly does not outlast the timeout."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc")
        await reader.read()
        writer.close()

    async with raw_server(talk) as url:
        assert failure(await http({"url": url}, context.build(timeout=0.3))).type == "timeout"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_abort_cuts_within_a_second(context: Context, method: str) -> None:
    """Once the session is leaving, a request that hangs is left at once."""
    async with silent() as seen:
        running = asyncio.create_task(http({"method": method, "url": seen.url}, context.build()))
        await seen.arrived.wait()
        context.aborted.set()
        started = asyncio.get_running_loop().time()
        ended = interruption(await running)
        assert asyncio.get_running_loop().time() - started < 1
    assert ended.reason == "cut"


async def test_nothing_is_sent_once_the_session_is_leaving(context: Context) -> None:
    """With the abort signal already set the server hears nothing."""
    context.aborted.set()
    async with serve() as seen:
        assert interruption(await http({"url": seen.url}, context.build())).reason == "cut"
    assert seen.requests == []


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_a_lost_answer_is_never_asked_for_twice(context: Context, method: str) -> None:
    """If the server hangs up, nothing is sent again: a reading request fails, and any other has an unknown outcome."""
    asked = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1
        writer.close()

    async with raw_server(talk) as url:
        outcome = await http({"method": method, "url": url}, context.build())
    assert asked == 1
    if method == "GET":
        assert failure(outcome).type == "disconnected"
    else:
        assert interruption(outcome).reason == "cut"


async def test_a_redirect_that_cannot_be_followed_leaves_the_first_request_in_doubt(
    context: Context,
) -> None:
    """A POST that was taken and sent elsewhere is not reported as if it had never been sent."""
    loop = asyncio.get_running_loop()
    asked = loop.create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        server.close()
        writer.write(b"HTTP/1.1 307 T\r\nLocation: /end\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()
        asked.set_result(None)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    assert interruption(await http({"method": "POST", "url": url}, context.build())).reason == "cut"
    await asked


@pytest.mark.parametrize(
    "answer", [b"hello\r\n\r\n", b"HTTP/1.1 99999 x\r\n\r\n", b"HTTP/1.1 200 OK\r\nA" + b"x" * 100_000]
)
async def test_an_answer_that_is_no_http_is_a_failure(context: Context, answer: bytes) -> None:
    """Garbage does not raise."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with raw_server(talk) as url:
        assert failure(await http({"url": url}, context.build())).type == "disconnected"


# --- secrets -------------------------------------------------------------------------------------------


async def test_secrets_in_headers_come_back_as_marks(context: Context) -> None:
    """A server that echoes a secret in body, JSON, headers and reason leaves only marks in the outcome."""
    context.secrets["TOKEN"] = "canary/+ä-5f3a"

    async def echo(request: web.Request) -> web.StreamResponse:
        token = "canary/+ä-5f3a"
        return web.json_response(
            {"you sent": request.headers["X-Token"], token: [token, 1]},
            status=500,
            headers={"X-Echo": "canary/+ä-5f3a"},
        )

    async with serve(echo) as seen:
        config = {"url": seen.url, "headers": {"X-Token": {"$secret": "TOKEN"}}}
        failed = failure(await http(config, context.build()))
    assert seen.header("X-Token") == "canary/+ä-5f3a"
    assert "canary" not in repr(failed)
    assert failed.details["json"] == {
        "you sent": "[secret TOKEN]",
        "[secret TOKEN]": ["[secret TOKEN]", 1],
    }
    assert failed.details["headers"]["x-echo"] == "[secret TOKEN]"


async def test_secrets_leave_from_everywhere_in_a_request(context: Context) -> None:
    """In the path quoted as one part, in the query, and within the body as text or JSON; an echo has marks."""
    context.secrets.update({"TOKEN": "canary/5f3a?x", "KEY": "canary key&1"})

    async def echo(request: web.Request) -> web.StreamResponse:
        return web.json_response({"path": request.raw_path, "body": await request.text()})

    async with serve(echo) as seen:
        config = {
            "method": "POST",
            "url": {"$secret_text": [f"{seen.url}/bot", {"$secret": "TOKEN"}, "/send"]},
            "query": {"key": {"$secret": "KEY"}},
            "json": {"deep": [{"token": {"$secret_text": ["Bearer ", {"$secret": "TOKEN"}]}}]},
        }
        got = output(await http(config, context.build()))
        assert seen.requests[0][1] == "/botcanary%2F5f3a%3Fx/send?key=canary+key%261"
        whole = {"url": {"$secret": "HOOK"}, "method": "POST", "body": {"$secret": "TOKEN"}}
        context.secrets["HOOK"] = f"{seen.url}/services/canary-hook"
        plain = output(await http(whole, context.build()))
        assert seen.requests[1][1] == "/services/canary-hook"
    assert got["json"]["body"] == '{"deep":[{"token":"Bearer [secret TOKEN]"}]}'
    assert plain["json"]["body"] == "[secret TOKEN]"
    assert "canary" not in repr(got)


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ({"$secret": "S"}, "canary:1/path?sig=canary"),
        ({"$secret": "S"}, "http://canary host/"),
        ({"$secret": "S"}, "http://127.0.0.1:1/canary/x?sig=canary"),
        ({"$secret_text": ["http://127.0.0.1:1/", {"$secret": "S"}, "?a=1"]}, "canary/1"),
        ({"$secret_text": ["http://", {"$secret": "S"}, "/a"]}, "canary:x"),
    ],
)
async def test_an_error_quotes_no_part_of_a_url_with_secrets(
    context: Context, url: dict[str, Any], secret: str
) -> None:
    """Whatever is wrong with it, or cannot be reached, the message has the secret's name only."""
    context.secrets["S"] = secret
    failed = failure(await http({"url": url}, context.build()))
    assert "[secret S]" in failed.message
    assert "canary" not in repr(failed)


async def test_fifty_canaries_in_every_encoding_never_come_back(context: Context) -> None:
    """A server that answers with 50 secrets (12 in `make test`) in each encoding, in body, JSON and headers, gives none away."""
    # A header holds one line of Latin letters, so only such values can be sent at all.
    values = [value.strip() for value in canaries() if value.isascii() and value.isprintable()]
    context.secrets.update({f"S{n}": value for n, value in enumerate(values)})
    lines = [form(value) for value in values for form in ENCODINGS.values()]
    plain = [line for line in lines if line.isascii() and line.isprintable()]

    async def echo(_: web.Request) -> web.StreamResponse:
        headers = {f"X-{n}": line for n, line in enumerate(plain[:60])}
        return web.json_response({"all": lines}, status=500, headers=headers)

    async with serve(echo) as seen:
        headers = {f"X-{name}": {"$secret": name} for name in context.secrets}
        config = {"url": seen.url, "headers": headers, "max_body": 1_000_000}
        failed = failure(await http(config, context.build()))
    assert len(values) >= len(canaries()) // 2
    assert len(failed.details["json"]["all"]) == len(lines)
    shown = [failed.details["body"], *failed.details["json"]["all"], *failed.details["headers"].values()]
    clean = "\n".join(shown).replace("[secret ", "\0")
    for value in values:
        assert [name for name, form in ENCODINGS.items() if rest_of(bare(form(value)), clean)] == []


async def test_a_cut_through_a_secret_leaves_no_half_of_it(context: Context) -> None:
    """Wherever `max_body` falls, no part of a secret's value stays in the body."""
    context.secrets["TOKEN"] = "ABCDEFGHIJKLMNOP"
    async with serve(answering(text="0123" + "ABCDEFGHIJKLMNOP" * 3)) as seen:
        for limit in range(40):
            config = {"url": seen.url, "max_body": limit, "headers": {"X": {"$secret": "TOKEN"}}}
            body = failure(await http(config, context.build())).details["body"]
            assert not set(body.replace("[secret TOKEN]", "")) & set("ABCDEFGHIJKLMNOP"), (limit, body)


async def test_a_secret_that_is_not_set_says_what_to_set(context: Context) -> None:
    """A missing secret fails as `secret` before anything is sent."""
    config = {"url": "http://127.0.0.1:1/", "headers": {"X": {"$secret": "TOKEN"}}}
    failed = failure(await http(config, context.build()))
    assert failed.type == "secret"
    assert "SAYSO_SECRET_TOKEN" in failed.message
