"""From the config of an `http` node to a request, and from a redirect to the next one. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from multidict import CIMultiDict
from yarl import URL

from engine.language.codec import Json, encode
from engine.language.errors import NotJson
from engine.nodes.runtime.runner import Refusal, as_text
from engine.nodes.runtime.secrets import Resolver, marked
from engine.nodes.types.addresses import is_disguised

MAX_BODY = 256 * 1024
"""Bytes kept of an answer, unless `max_body` says otherwise."""

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSAFE = re.compile(r"[\r\n\0]")
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection"})
_HARMLESS = frozenset({"accept", "accept-language", "content-type", "idempotency-key", "range", "user-agent"})
"""The headers that may go to another host than the one they were meant for; any other may be a credential."""


@dataclass(frozen=True)
class Request:
    """One request, ready to be sent. `url` has neither credentials nor a fragment."""

    method: str
    url: URL
    headers: CIMultiDict[str]
    body: bytes | None
    ok_status: Container[int] | None
    max_body: int
    allow_hosts: tuple[str, ...]
    shown: str | None = None
    """The URL as errors name it, where secrets stand in it."""
    secret_body: bool = False
    """Whether secrets stand in the body."""
    schema: Json = None
    """What the JSON of the answer has to fit; None for anything."""

    @property
    def is_safe(self) -> bool:
        """Whether it only reads."""
        return self.method in _SAFE

    def accepts(self, status: int) -> bool:
        """Whether the flow named this status as a good answer."""
        return self.ok_status is not None and status in self.ok_status

    def is_ok(self, status: int) -> bool:
        """Whether an answer with this status is a success."""
        return status < 400 if self.ok_status is None else status in self.ok_status


def prepare(config: Mapping[str, Json], key: str, resolver: Resolver) -> Request:
    """The request that this config describes, with `key` as its Idempotency-Key. Raises `Refusal`."""
    method = as_text(config.get("method") or "GET", "`method`").upper()
    if not _TOKEN.fullmatch(method):
        raise Refusal("invalid", f"`method`: {method!r} is no HTTP method")
    given = config.get("url")
    shown = None if isinstance(given, str) else marked(given)
    url = _with_query(_url(resolver.url(given, "`url`"), shown), config.get("query"), resolver)
    headers = _headers(config.get("headers"), resolver)
    if url.user is not None or url.password is not None:
        pair = f"{url.user or ''}:{url.password or ''}".encode()
        headers.setdefault("Authorization", f"Basic {base64.b64encode(pair).decode()}")
    body = _body(config, headers, resolver)
    secret_body = any(marked(config.get(name)) != config.get(name) for name in ("body", "json"))
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
        secret_body=secret_body,
    )


def redirected(request: Request, status: int, location: str) -> Request:
    """The request that follows this one when the server sends us elsewhere. Raises `Refusal`.

    Another host, port or scheme gets no credentials: only headers that cannot be any, and no body with secrets. 303, and 301 and 302
    for a POST, turn the request into a GET without a body, as browsers do.
    """
    try:
        url = request.url.join(URL(location))
        _check(url)
    except (ValueError, Refusal) as error:
        raise Refusal(
            "redirect", f"{reported(request)} was redirected to {location[:200]!r}: {error}"
        ) from error
    headers = request.headers.copy()
    # A URL can name an origin in many ways; yarl's has scheme, host and port and nothing else.
    elsewhere = url.origin() != request.url.origin()
    if elsewhere:
        headers = CIMultiDict((name, value) for name, value in headers.items() if name.lower() in _HARMLESS)
    method, body = request.method, request.body
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        for name in ("Content-Type", "Idempotency-Key"):
            headers.popall(name, None)
    if elsewhere and body is not None and request.secret_body:
        raise Refusal(
            "redirect", f"{reported(request)} was redirected to another host, and its body has secrets"
        )
    return replace(request, url=_bare(url), method=method, body=body, headers=headers)


def reported(request: Request) -> str:
    """The request as errors name it: without query, which may hold what is nobody's business."""
    return f"{request.method} {request.shown or request.url.with_query(None)}"


def _url(text: str, shown: str | None) -> URL:
    """The address in this text; of one with secrets errors say only how it is `shown`, since they may quote a part."""
    try:
        url = URL(text.strip())
        _check(url)
    except (ValueError, Refusal) as error:
        if shown is not None:
            raise Refusal("invalid", f"`url`: {shown} is no address that can be used") from None
        if isinstance(error, Refusal):
            raise
        raise Refusal("invalid", f"`url`: {text[:200]!r} is no URL ({error})") from error
    return url


def _check(url: URL) -> None:
    """Raises `Refusal`."""
    if url.scheme not in ("http", "https"):
        raise Refusal("invalid", f"`url`: only http:// and https:// are possible, not {url.scheme or 'none'}")
    if not url.host or re.search(r"[\s\\]", url.host):
        raise Refusal("invalid", f"`url`: {str(url)[:200]!r} names no host")
    if is_disguised(url.host):
        raise Refusal("address_refused", f"`url`: write the address {url.host} as four decimal numbers")


def _bare(url: URL) -> URL:
    return url.with_user(None).with_fragment(None)


def _with_query(url: URL, query: Json, resolver: Resolver) -> URL:
    pairs = [
        (name, resolver.text(item, f"`query` {name}"))
        for name, value in (query or {}).items()
        for item in (value if isinstance(value, list) else [value])
        if item is not None  # an optional parameter that was not given
    ]
    return url.extend_query(pairs) if pairs else url


def _headers(given: Json, resolver: Resolver) -> CIMultiDict[str]:
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in (given or {}).items():
        if not _TOKEN.fullmatch(name) or name.lower() in _FRAMING:
            raise Refusal("invalid", f"`headers`: {name!r} is not a header that a flow can set")
        text = resolver.text(value, f"header {name}").strip()
        if _UNSAFE.search(text):
            raise Refusal("invalid", f"header {name} contains a line break or NUL; remove it upstream")
        headers[name] = text
    return headers


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
