"""The `http` node: one request, and up to five redirects that keep it as it is, within the rules of
`engine.nodes.types.addresses`.

Output {status, headers, body, json}: header names in small letters, `body` as text, `json` the parsed body if the
content type is JSON and it parses (else null). A status of 300 or more (but 304), or one that `ok_status` does not
list, is a failure that holds this output; so is a body of more than `max_body` bytes, cut there.

The effect of a lost answer depends on the method. GET, HEAD and OPTIONS change nothing: every error is a failure. With
any other method, an error before the connection stood is a failure (`connect`), and after it an interruption: the
server may have acted on the request. For the same reason nothing is ever sent twice here. Proxies of the environment
are not used, since the address behind one could not be checked.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import re
import socket
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
from aiohttp.abc import AbstractCookieJar
from multidict import CIMultiDict
from yarl import URL

from engine.language.codec import Json, copy, encode, problems, read
from engine.language.errors import Inexact, NotJson
from engine.nodes.runtime.effects import before_effect
from engine.nodes.runtime.redact import Redactor
from engine.nodes.runtime.runner import (
    Completed,
    Failed,
    Interrupted,
    NodeContext,
    Outcome,
    Refusal,
    as_text,
    first_of,
)
from engine.nodes.runtime.secrets import Resolver, marked, redacted
from engine.nodes.runtime.unreachable import why_unconnected
from engine.nodes.types.addresses import is_disguised, parsed, why_refused

MAX_REDIRECTS = 5
CONNECT_TIMEOUT = 30.0
"""Seconds for one attempt to connect, however much time the node has."""

_CANCEL_WITHIN = 0.5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHUNK = 64 * 1024
_SLOW_OR_ODD = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7"})
"""Codecs that are not charsets of the web: some take quadratic time, some accept anything."""


async def http(config: dict[str, Json], ctx: NodeContext) -> Outcome:
    """Send a request: method, url, headers, query, body|json, ok_status, max_body, allow_hosts."""
    resolver = Resolver(ctx.secret)
    try:
        request = replace(prepare(config, ctx.idempotency_key, resolver), pinned=ctx.pinned)
    except Refusal as refusal:
        return redacted(refusal.outcome, resolver.redactor())
    if ctx.aborted.is_set():
        return Interrupted("cut", "the session was stopping before the request was sent")
    redactor = resolver.redactor()
    exchange = _Exchange(request, first=request)
    outcome = await _within(_perform(exchange, redactor), exchange, ctx)
    # Outputs are redacted already; a message may quote the client or the server.
    return outcome if isinstance(outcome, Completed) else redacted(outcome, redactor)


@dataclass
class _Exchange:
    """Progress of a request: the hop due now, and whether a server may have received one."""

    request: Request
    first: Request
    refused: str | None = None
    connected: bool = False
    lost: BaseException | None = None
    changed: bool = False
    "True if a redirect answered an earlier hop whose method changes things."

    @property
    def in_doubt(self) -> bool:
        """True if a server may have done something that we cannot know of."""
        return self.changed or (self.connected and not self.request.is_safe)

    def go_to(self, request: Request) -> None:
        """The next hop is due."""
        self.changed = self.changed or not self.request.is_safe
        self.request, self.connected = request, False
        self.refused = self.lost = None


async def _within(work: Any, exchange: _Exchange, ctx: NodeContext) -> Outcome:
    """Run the work until it ends, times out or the session leaves; an end that is there wins."""
    task: asyncio.Task[Outcome] = asyncio.ensure_future(work)
    try:
        reason = await first_of(task, ctx.aborted, ctx.timeout)
        if reason is None:
            return task.result()
        in_doubt = exchange.in_doubt
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_WITHIN)
    finally:
        task.cancel()
    name = reported(exchange.request)
    if reason == "cut":
        return Interrupted("cut", f"{name} was cut off because the session is stopping")
    late = f"{name} did not answer completely within {ctx.timeout:g} s"
    if in_doubt:
        return Interrupted("timeout", late)
    return Failed("timeout" if exchange.first.is_safe else "connect", late)


async def _perform(exchange: _Exchange, redactor: Redactor) -> Outcome:
    """The request and its redirects, with every error of the client turned into an outcome."""
    try:
        async with _session(exchange) as session:
            for _ in range(MAX_REDIRECTS + 1):
                request = exchange.request
                async with session.request(
                    request.method,
                    request.url,
                    headers=request.headers,
                    data=request.body,
                    allow_redirects=False,
                ) as response:
                    target = response.headers.get("Location")
                    if not target or response.status not in _REDIRECTS or request.accepts(response.status):
                        return await _answer(request, response, redactor)
                exchange.go_to(_redirected(request, response.status, target))
            message = f"{reported(exchange.first)} was redirected more than {MAX_REDIRECTS} times"
            raise Refusal("redirect", f"{message}, last to {reported(exchange.request)}", _IN_VAIN)
    except Refusal as refusal:
        return refusal.outcome
    except aiohttp.InvalidURL as error:
        return Failed("invalid", f"{reported(exchange.request)}: {error}")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        name = reported(exchange.request)
        if exchange.refused:
            return Failed("address_refused", f"{name}: {exchange.refused}")
        reason = str(error) or type(error).__name__
        if exchange.in_doubt:
            return Interrupted("cut", f"{name}: the answer was lost ({reason})")
        if exchange.connected:
            return Failed("disconnected", f"{name}: the answer was lost ({reason})")
        url = exchange.request.url
        return Failed("connect", f"{name}: {why_unconnected(error, url.host or '', url.port)}")


async def _answer(request: Request, response: aiohttp.ClientResponse, redactor: Redactor) -> Outcome:
    # Of a longer body its beginning, with a margin in which a secret that is cut can still be found.
    limit = request.max_body + 4 * redactor.margin
    received = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        received += chunk
        if len(received) > limit:
            break
    data, complete = bytes(received[:limit]), len(received) <= request.max_body
    text = _to_text(data, response.charset)
    inexact = None
    try:
        kind = response.content_type.lower()
        is_json = kind == "application/json" or kind.endswith("+json")
        parsed = copy(read(text)) if complete and is_json else None
    except NotJson as error:
        parsed, inexact = None, str(error) if isinstance(error, Inexact) else None
    if complete:
        body = redactor.text(text)
    else:
        kept = len(_to_text(data[: request.max_body], response.charset))
        body = redactor.window(text, 0, kept)
        body += f"\n[… cut here: the body is longer than {request.max_body} bytes …]"
    # By name in small letters; repeated ones are joined by a comma, cookies by a line break.
    headers = {
        name: ("\n" if name == "set-cookie" else ", ").join(
            value.encode("utf-8", "replace").decode() for value in response.headers.getall(name)
        )
        for name in dict.fromkeys(name.lower() for name in response.headers)
    }
    output: dict[str, Json] = {
        "status": response.status,
        "headers": redactor.json(headers),
        "body": body,
        "json": redactor.json(parsed),
    }
    if not request.is_ok(response.status):
        words = f"{response.status} {response.reason or ''}".strip()
        return Failed("http_status", f"{reported(request)} was answered with {words}", output)
    if not complete:
        message = f"{reported(request)}: the answer is longer than `max_body` ({request.max_body} bytes)"
        return Failed("body_too_large", message, output)
    if inexact is not None:
        return Failed("inexact", f"{reported(request)}: in the answer, {inexact}", output)
    if request.schema is not None and (wrong := problems(request.schema, parsed)):
        message = f"{reported(request)}: the answer does not fit `schema`: {'; '.join(wrong)}"
        return Failed("schema", message, output)
    return Completed(output)


# --- the answer, which may be anything: of any size, in any charset, JSON or only called so -----------------


def _to_text(data: bytes, charset: str | None) -> str:
    """Decode these bytes in that charset, or in UTF-8 if it is missing or unknown. Never fails."""
    try:
        name = codecs.lookup(charset or "utf-8").name.replace("_", "-")
        text = data.decode("utf-8" if name in _SLOW_OR_ODD else name, "replace")
    except (LookupError, ValueError):
        text = data.decode("utf-8", "replace")
    # Some codecs let halves of characters through, which no store takes.
    return text.encode("utf-8", "replace").decode().removeprefix("\ufeff")


# --- the client ----------------------------------------------------------------------------------------


def _session(exchange: _Exchange) -> aiohttp.ClientSession:
    """A client for this one exchange: no cookies, no proxy, no reuse, and an eye on every address."""

    def open_socket(info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, address = info
        request = exchange.request
        exchange.refused = why_refused(str(address[0]), request.url.host or "", request.allow_hosts)
        if exchange.refused:
            raise PermissionError(exchange.refused)
        return socket.socket(family, kind, protocol)

    async def connected(*_: Any) -> None:
        exchange.connected, exchange.refused = True, None

    async def once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        # The client would repeat PUT and DELETE when the connection is lost.
        if exchange.lost:
            raise exchange.lost
        await before_effect()
        try:
            return await send(request)
        except aiohttp.ClientError as error:
            exchange.lost = error
            raise

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(connected)
    jar: AbstractCookieJar = aiohttp.DummyCookieJar()
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(use_dns_cache=False, force_close=True, socket_factory=open_socket),
        cookie_jar=jar,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
        trace_configs=[trace],
        middlewares=[once],
    )


# --- requests ----------------------------------------------------------------------------------------------


MAX_BODY = 256 * 1024
"""Bytes kept of an answer, unless `max_body` says otherwise."""

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSAFE = re.compile(r"[\r\n\0]")
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection"})
_IN_VAIN = {"retryable": False}
"""Marks a redirect that is not followed: the same request would be redirected again."""
_HARMLESS = frozenset({"accept", "accept-language", "content-type", "idempotency-key", "range", "user-agent"})
"""The headers that may go to another host than the one they were meant for; any other may be a credential."""


@dataclass(frozen=True)
class Request:
    """A request ready to be sent. `url` has neither credentials nor a fragment."""

    method: str
    url: URL
    headers: CIMultiDict[str]
    body: bytes | None
    ok_status: Container[int] | None
    max_body: int
    allow_hosts: tuple[str, ...]
    shown: str | None = None
    """The URL as errors name it, where secrets are in it."""
    schema: Json = None
    """JSON Schema that the answer's JSON must fit; None for anything."""
    pinned: bool = False
    """True if people approved this address, or a rule names its host: redirects to other hosts are not followed."""

    @property
    def is_safe(self) -> bool:
        """True if it only reads."""
        return self.method in _SAFE

    def accepts(self, status: int) -> bool:
        """True if the flow named this status as a good answer."""
        return self.ok_status is not None and status in self.ok_status

    def is_ok(self, status: int) -> bool:
        """True if an answer with this status is a success."""
        # A redirect that says where to is followed before; 304 is the answer to a question that the flow asked.
        return self.accepts(status) if self.ok_status is not None else status < 300 or status == 304


def prepare(config: Mapping[str, Json], key: str, resolver: Resolver) -> Request:
    """The request that this config describes, with `key` as its Idempotency-Key. Raises `Refusal`."""
    method = as_text(config.get("method") or "GET", "`method`").upper()
    if not _TOKEN.fullmatch(method):
        raise Refusal("invalid", f"`method`: {method!r} is not an HTTP method")
    given = config.get("url")
    shown = None if isinstance(given, str) else marked(given)
    url = _url(resolver.url(given, "`url`"), shown)
    pairs = [
        (name, resolver.text(item, f"`query` {name}"))
        for name, value in (config.get("query") or {}).items()
        for item in (value if isinstance(value, list) else [value])
        if item is not None  # an optional parameter that was not given
    ]
    url = url.extend_query(pairs) if pairs else url
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in (config.get("headers") or {}).items():
        if not _TOKEN.fullmatch(name) or name.lower() in _FRAMING:
            raise Refusal("invalid", f"`headers`: {name!r} is not a header that a flow can set")
        text = resolver.text(value, f"header {name}").strip()
        if _UNSAFE.search(text):
            raise Refusal("invalid", f"header {name} contains a line break or NUL; remove it upstream")
        headers[name] = text
    if url.user is not None or url.password is not None:
        pair = f"{url.user or ''}:{url.password or ''}".encode()
        headers.setdefault("Authorization", f"Basic {base64.b64encode(pair).decode()}")
    body = _body(config, headers, resolver)
    headers.setdefault("User-Agent", "sayso")
    if method not in _SAFE:
        headers.setdefault("Idempotency-Key", key)
    ok_status = config.get("ok_status")
    return Request(
        method=method,
        url=_bare(url),
        headers=headers,
        body=body,
        ok_status=range(1000) if ok_status == "any" else ok_status,
        max_body=config.get("max_body", MAX_BODY),
        schema=config.get("schema"),
        allow_hosts=tuple(config.get("allow_hosts") or ()),
        shown=shown,
    )


def _redirected(request: Request, status: int, location: str) -> Request:
    """Return the request that follows a redirect. Raises `Refusal`.

    A redirect is followed if it keeps method, body and host. A request that only reads, and is not pinned, may also go
    to another host, without headers that may hold credentials.
    """
    try:
        url = request.url.join(parsed(location))
        _check(url)
    except (ValueError, Refusal) as error:
        raise Refusal(
            "redirect", f"{reported(request)} was redirected to {location[:200]!r}: {error}", _IN_VAIN
        ) from error
    asked, target = ((one.scheme, one.host, one.port) for one in (request.url, url))
    upgraded = (asked[0], asked[2], target[0], target[2]) == ("http", 80, "https", 443)
    elsewhere = asked != target and not (upgraded and asked[1] == target[1])
    method = request.method
    if (status == 303 and method not in ("GET", "HEAD")) or (status in (301, 302) and method == "POST"):
        why = "a GET without the body would be sent there"
    elif elsewhere and (request.pinned or request.body is not None or not request.is_safe):
        why = "that is another host, port or scheme"
    elif (asked[0], target[0]) == ("https", "http"):
        why = "that is not encrypted"
    else:
        headers = request.headers
        if elsewhere:
            headers = CIMultiDict((n, value) for n, value in headers.items() if n.lower() in _HARMLESS)
        return replace(request, url=_bare(url), headers=headers)
    message = f"{reported(request)} was answered with {status}, a redirect to {_bare(url).with_query(None)}"
    hint = "set `url` to that address if it is the right one"
    raise Refusal("redirect", f"{message}, which is not followed: {why}; {hint}", _IN_VAIN)


def reported(request: Request) -> str:
    """Return the request as errors name it: without the query, which may be confidential."""
    return f"{request.method} {request.shown or request.url.with_query(None)}"


def _url(text: str, shown: str | None) -> URL:
    """The address in this text; of one with secrets errors say only how it is `shown`, since they may quote a part."""
    try:
        url = parsed(text.strip())
        _check(url)
    except (ValueError, Refusal) as error:
        if shown is not None:
            raise Refusal("invalid", f"`url`: {shown} is not a usable address") from None
        if isinstance(error, Refusal):
            raise
        raise Refusal("invalid", f"`url`: {text[:200]!r} is not a URL ({error})") from error
    return url


def _check(url: URL) -> None:
    """Raises `Refusal`."""
    if url.scheme not in ("http", "https"):
        raise Refusal("invalid", f"`url`: only http:// and https:// are possible, not {url.scheme or 'none'}")
    if not url.host or re.search(r"[\s\\]", url.host):
        raise Refusal("invalid", f"`url`: {str(url)[:200]!r} has no host")
    if is_disguised(url.host):
        raise Refusal("address_refused", f"`url`: write the address {url.host} as four decimal numbers")


def _bare(url: URL) -> URL:
    return url.with_user(None).with_fragment(None)


def _body(config: Mapping[str, Json], headers: CIMultiDict[str], resolver: Resolver) -> bytes | None:
    body, value = (resolver.json(config.get(name), f"`{name}`") for name in ("body", "json"))
    if value is not None:
        headers.setdefault("Content-Type", "application/json")
        try:
            return encode(value)
        except NotJson as error:
            raise Refusal("invalid", f"`json`: {error}") from error
    if body is None:
        return None
    headers.setdefault("Content-Type", "text/plain; charset=utf-8")
    return str(body).encode("utf-8", "replace")
