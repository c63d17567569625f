"""The `http` node: one request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, WrapValidator

from engine.language.codec import Json
from engine.language.diagnostics import Fault
from engine.language.template import is_marker_key
from engine.nodes.types.fields import (
    AS_IT_IS,
    OR_ANY,
    Config,
    Query,
    Scalar,
    Size,
    Text,
    check_headers,
    codes,
)
from engine.nodes.types.preview import as_json, block, named, quoted, without_secrets
from engine.nodes.types.spec import Known, NodeSpec
from engine.types.lattice import ANY, NUMBERS, TEXTS, Type, mapping_of, schema_type

_READ_ONLY = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing, so that a request may be repeated after a crash."""


def _or_reference(value: Any, handler: Callable[[Any], Any]) -> Any:
    """Lets a reference to a secret through where text is wanted: it is text once the request leaves."""
    return (
        value
        if isinstance(value, dict) and len(value) == 1 and is_marker_key(next(iter(value)))
        else handler(value)
    )


_REFERABLE = WrapValidator(_or_reference)


class HttpConfig(Config):
    """Sends a request. A status of 300 or more (except 304), or one that is not in `ok_status`, fails the node.

    `{{ secrets.NAME }}` can appear anywhere in the request. sayso follows up to five redirects that keep method, body
    and host (also from `http` to `https`). A request that only reads (`GET`, `HEAD`, `OPTIONS` without a body) may go
    to another host, without credentials, unless an approval covers the node. Any other redirect fails the node with the
    new address. All methods except `GET`, `HEAD` and `OPTIONS` send an `Idempotency-Key`. Link-local and metadata
    addresses are refused unless `allow_hosts` names their host.
    """

    method: Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    """The method."""
    url: Annotated[Text, _REFERABLE, AS_IT_IS]
    """The address, starting with http:// or https://. A secret at its beginning is inserted as it is; further on it
    is percent-encoded."""
    headers: dict[str, Scalar] = Field(default_factory=dict)
    """Headers."""
    query: dict[str, Query] = Field(default_factory=dict)
    """Query parameters, percent-encoded. A list repeats the name; null leaves it out."""
    body: Annotated[str | None, _REFERABLE, AS_IT_IS] = None
    """The body as text. Either this or `json`."""
    json_: Json = Field(None, alias="json")
    """The body as JSON."""
    ok_status: (
        Annotated[
            list[Annotated[int, Field(ge=100, le=599)]],
            Field(min_length=1),
            OR_ANY,
            AS_IT_IS,
            codes(100, 599),
        ]
        | None
    ) = None
    """Statuses that are not failures. Default: all below 400. A redirect listed here is not followed. `any`: every
    status."""
    max_body: Size = 256 * 1024
    """The largest response body; a longer one fails the node."""
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    """A literal JSON Schema of the response. A response that does not match fails the node, and expressions are
    checked against it."""
    allow_hosts: list[Text] = Field(default_factory=list)
    """Hosts that may be reached even if they are link-local."""

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Require at most one body, an http address, and valid header names."""
        if "body" in raw and "json" in raw:
            yield Fault(
                ("json",), "`body` and `json` cannot be used together", "keep one of them", on_key=True
            )
        url = raw.get("url")
        if (
            isinstance(url, str)
            and url
            and not url.startswith("{{")
            and not re.match(r"https?://", url, re.I)
        ):
            yield Fault(
                ("url",), f"expected an address that begins with http:// or https://, not {url[:60]!r}"
            )
        yield from check_headers(raw)


def _output(known: Known) -> Type:
    """Return the output type of a request; `schema` defines its JSON."""
    schema = known.with_.get("schema")
    body = ANY if schema is None else schema_type(schema)
    headers = mapping_of({}, rest=TEXTS)
    return mapping_of({"status": NUMBERS, "headers": headers, "body": TEXTS, "json": body})


def _preview(config: Mapping[str, Json]) -> Iterator[str]:
    url, body = config["url"], config.get("body")
    yield f"{config['method']} {quoted(url) if isinstance(url, str) else without_secrets(url)}"
    for name, value in (config.get("query") or {}).items():
        yield f"query {quoted(name)}: {without_secrets(value) if isinstance(value, dict) else as_json(value)}"
    yield from named("header", config.get("headers") or {})
    if isinstance(body, dict):
        yield f"body: {without_secrets(body)}"
    elif body is not None:
        yield from block("body", body)


SPEC = NodeSpec(
    config=HttpConfig,
    outputs={
        "status": "The status; null if a person said that the interrupted node is done.",
        "headers": "The response headers, with lower-case names.",
        "body": "The response as text.",
        "json": "The response as JSON if it is JSON, else null; an integer beyond 64 bits fails the node.",
    },
    output=_output,
    timeout=30.0,
    on_crash=lambda with_: "again" if with_.get("method", "GET") in _READ_ONLY else "ask",
    crash_words="`again` for `GET`, `HEAD` and `OPTIONS`, else `ask`",
    unknown_output={"status": None, "headers": {}, "body": "", "json": None},
    preview=_preview,
    previewed=frozenset({"method", "url", "query", "headers", "body"}),
    secret_fields=frozenset({"url", "query", "headers", "body", "json"}),
    exact=("url", "headers", "query", "ok_status"),
    verbatim_fields=frozenset({"schema"}),
    static_fields=frozenset({"schema"}),
    schema_fields=frozenset({"schema"}),
    sparse_fields=frozenset({"schema"}),
)
