"""Claude, through Anthropic's SDK: what the Messages API wants to hear, and what its refusals mean.

The SDK is imported when the first turn is asked for: it takes a second. It sends and receives; what a stream
means is ours (`engine.messages.stream`), because its models would drop or add fields, and because its own
retries, its conversations on the server and its traces would happen outside of the journal.
"""

from __future__ import annotations

import asyncio
import hmac
import importlib
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from engine.language.codec import Json
from engine.messages.errors import (
    AccessDenied,
    ContextTooLong,
    InvalidRequest,
    ModelGone,
    Overloaded,
    PrefixMismatch,
    ProviderError,
    RateLimited,
    SpendLimit,
    StreamCut,
    Unavailable,
)
from engine.messages.models import ModelFacts, shipped, told
from engine.messages.request import Feature, betas, refused, without
from engine.messages.stream import Assembly
from engine.messages.turns import Finished, TurnEvent, TurnRequest
from engine.models.keys import AUTH, AUTH_VARIABLE, KEY_VARIABLES
from engine.models.provider import Abortable, Aborted, refuse_illegal, settle
from engine.nodes.runtime.effects import before_effect
from engine.nodes.runtime.unreachable import why_unconnected

log = logging.getLogger("sayso.agent")

_DAY, _SOON, _ASKING = 86_400.0, 300.0, 10.0
"""Seconds: how long an answer holds, after how long is asked again that was not answered, how long an answer may take."""

DEFAULT_BASE_URL = "https://api.anthropic.com"


class ClaudeProvider:
    """Turns with Claude. One client, so one pool of connections, for all conversations of an event loop."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        caching: bool = True,
        connect_timeout: float = 10.0,
        silence: float = 300.0,
    ) -> None:
        """`environ` has the key (`SAYSO_ANTHROPIC_API_KEY`, else `ANTHROPIC_API_KEY`) and maybe `ANTHROPIC_BASE_URL` and
        `SAYSO_ANTHROPIC_AUTH`.

        `connect_timeout` and `silence` (the longest time without a byte) are seconds.
        """
        keys = (environ.get(name, "").strip() for name in KEY_VARIABLES)
        self._key = next((key for key in keys if key), "")
        self._base_url = environ.get("ANTHROPIC_BASE_URL") or DEFAULT_BASE_URL
        self._auth = environ.get(AUTH_VARIABLE, "").strip().lower() or AUTH[0]
        self._caching = caching
        self._timeouts = (connect_timeout, silence)
        self._client: Any = None
        self._off: dict[str, list[Feature]] = {}
        """By model what it, or the API, has refused."""
        self._models: dict[str, tuple[ModelFacts, float]] = {}
        """By model what it takes, and until when that is believed."""

    async def stream(
        self, request: TurnRequest, abort: asyncio.Event | None = None
    ) -> AsyncGenerator[TurnEvent, None]:
        """One turn; see `Provider.stream`."""
        refuse_illegal(request)
        abortable, assembly = Abortable(abort), Assembly(model=request.model)
        opened: list[Any] = []
        try:
            response = await abortable.run(self._send(request, opened))
            assembly = Assembly(response.headers.get("request-id"), model=request.model)
            opened.append(events := self._events(response, assembly))
            while (event := await abortable.run(_next(events))) is not None:
                for told in assembly.take(event):
                    yield told
            yield Finished(assembly.finish())
        except Aborted:
            yield Finished(assembly.interrupted())
        finally:
            abortable.close()
            for each in reversed(opened):
                await settle(asyncio.ensure_future(each.aclose()))

    async def facts(self, model: str) -> ModelFacts:
        """Return the facts from the models endpoint, asked once a day; see `Provider`."""
        known, until = self._models.get(model, (shipped(model), 0.0))
        if time.monotonic() < until:
            return known
        try:
            client = await self._connect()
            info = await client.beta.models.retrieve(model, timeout=_ASKING)
            known, lasts = told(model, info.to_dict(mode="json")), _DAY
        except ProviderError:
            raise
        except Exception as error:
            log.info(
                "could not look up the limits of %s, so the data of this release is used: %s", model, error
            )
            lasts = _SOON
        self._models[model] = (known, time.monotonic() + lasts)
        return known

    async def close(self) -> None:
        """Close the connections; the next turn opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _send(self, request: TurnRequest, opened: list[Any]) -> Any:
        """The response as soon as its headers are there.

        It is noted in `opened` too: an abort in the same moment loses what this returns, and it must be closed.
        """
        client = await self._connect()
        off = self._off.setdefault(request.model, [])
        body = body_of(request, key=self._key, caching=self._caching)
        while True:
            left = without(body, off)
            await before_effect()
            try:
                stream = await self._post(client, left)
                break
            except InvalidRequest as error:
                feature = refused(left, str(error)) if type(error) is InvalidRequest else None
                if feature is None:
                    raise
                log.warning("%s is now called without %s: %s", request.model, feature.name, error)
                off.append(feature)
        opened.append(stream.response)
        return stream.response

    async def _post(self, client: Any, body: dict[str, Json]) -> Any:
        """The stream that answers this body, or one of our errors."""
        sdk = importlib.import_module("anthropic")
        named = {name: body[name] for name in ("model", "max_tokens", "messages")}
        rest = {name: value for name, value in body.items() if name not in named}
        try:
            return await client.beta.messages.create(
                **named, betas=betas(body) or sdk.omit, extra_body=rest, stream=True
            )
        except sdk.APIStatusError as error:
            headers = error.response.headers
            raise self._hidden(
                _error_of(error.status_code, error.body, headers=headers, fallback=str(error))
            ) from None
        except sdk.APITimeoutError:
            raise Unavailable(f"Claude at {self._base_url} did not answer in time") from None
        except sdk.APIConnectionError as error:
            where = urlsplit(self._base_url)
            why = why_unconnected(error.__cause__ or error, where.hostname or "", where.port)
            raise Unavailable(f"Claude at {self._base_url} cannot be reached: {why}") from None
        except sdk.AnthropicError as error:
            raise self._hidden(InvalidRequest(f"the request cannot be sent: {error}")) from None

    async def _connect(self) -> Any:
        """The client. Importing the SDK takes long: it is done in a thread, so that everything else continues."""
        # Say what is wrong with the key or the address before a library says it in words of its own.
        variables = " or ".join(KEY_VARIABLES)
        if not self._key:
            raise AccessDenied(
                f"no key for Claude is set: set {variables} (sayso dev runs flows without one)"
            )
        if self._auth not in AUTH:
            raise InvalidRequest(f"{AUTH_VARIABLE} takes {' or '.join(AUTH)}, not {self._auth!r}")
        if not re.fullmatch("[!-~]+", self._key):
            raise AccessDenied(
                f"the key for Claude ({variables}) has characters that are not allowed in a key"
            )
        try:
            address = urlsplit(self._base_url)
            usable = address.scheme in ("http", "https") and address.hostname and address.port != 0
        except ValueError:
            usable = False
        if not usable or not re.fullmatch("[!-~]+", self._base_url):
            raise InvalidRequest(
                f"ANTHROPIC_BASE_URL must be like {DEFAULT_BASE_URL}, not {self._base_url!r}"
            )
        if self._client is None:
            await asyncio.to_thread(importlib.import_module, "anthropic")
        if self._client is None:
            sdk = importlib.import_module("anthropic")
            connect, silence = self._timeouts
            self._client = sdk.AsyncAnthropic(
                api_key=self._key,
                default_headers=None
                if self._auth == AUTH[0]
                else {"X-Api-Key": self._key, "Authorization": sdk.omit},
                base_url=self._base_url,
                max_retries=0,
                timeout=sdk.Timeout(silence, connect=connect),
                http_client=sdk.DefaultAsyncHttpxClient(follow_redirects=False),
                open_telemetry=False,
            )
        return self._client

    async def _events(self, response: Any, assembly: Assembly) -> AsyncGenerator[Json, None]:
        """The events of a response as JSON. Raises for what is not an event stream, and for errors that it tells."""
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            raise assembly.bad(f"it is {kind or 'of no type'} and no event stream")
        async for event in _raw_events(response, assembly):
            try:
                data = event.json() if event.data else None
            except ValueError as error:
                raise assembly.bad(f"an event is no JSON ({error})") from error
            if event.event == "error":
                told = _error_of(None, data, headers=response.headers, fallback=event.data)
                told.usage = assembly.usage
                raise self._hidden(told)
            if data is not None:
                yield data

    def _hidden(self, error: ProviderError) -> ProviderError:
        """The error without the key, should somebody have quoted it."""
        text = str(error)
        if self._key in text:
            error.args = (text.replace(self._key, "***"),)
        return error


async def _raw_events(response: Any, assembly: Assembly) -> AsyncIterator[Any]:
    """The events as the SDK's decoder cuts them from the bytes."""
    sdk, http = importlib.import_module("anthropic"), importlib.import_module("httpx2")
    try:
        async for event in sdk.AsyncStream.raw_events(response):
            yield event
    except http.TimeoutException as error:
        raise Unavailable(
            "Claude stopped in the middle of an answer",
            request_id=assembly.request_id,
            usage=assembly.usage,
        ) from error
    except http.DecodingError as error:
        raise assembly.bad(f"its bytes cannot be decoded ({error})") from error
    except http.TransportError as error:
        raise StreamCut(
            f"the answer was cut off: {error}", request_id=assembly.request_id, usage=assembly.usage
        ) from error
    except UnicodeDecodeError as error:
        raise assembly.bad("it is not UTF-8") from error


async def _next(events: AsyncGenerator[Json, None]) -> Json:
    """The next event; None at the end."""
    return await anext(events, None)


# --- the Messages API --------------------------------------------------------------------------------------


_TYPES: dict[str, type[ProviderError]] = {
    "rate_limit_error": RateLimited,
    "overloaded_error": Overloaded,
    "api_error": Unavailable,
    "timeout_error": Unavailable,
    "authentication_error": AccessDenied,
    "permission_error": AccessDenied,
    "billing_error": SpendLimit,
    "invalid_request_error": InvalidRequest,
    "not_found_error": ModelGone,
    "request_too_large": ContextTooLong,
}
_STATUSES: dict[int, type[ProviderError]] = {
    401: AccessDenied,
    402: SpendLimit,
    403: AccessDenied,
    404: ModelGone,
    408: Unavailable,
    409: Unavailable,
    413: ContextTooLong,
    429: RateLimited,
    529: Overloaded,
}
_CODES: dict[str, type[ProviderError]] = {
    "enforced_spend_limit_reached": SpendLimit,
    "contract_spend_limit_reached": SpendLimit,
    "linked_organization_spend_limit_reached": SpendLimit,
    "organization_on_hold": AccessDenied,
    "compaction_unavailable": Overloaded,
    "file_expired": InvalidRequest,
}
"""Meaning of the provider's error codes, which take precedence over types and statuses."""
_WORDS: tuple[tuple[str, type[ProviderError]], ...] = (
    ("prompt is too long", ContextTooLong),
    ("exceed context limit", ContextTooLong),
    ("exceeds the context window", ContextTooLong),
    ("bound to a different conversation", PrefixMismatch),
    ("spend limit", SpendLimit),
    ("usage limits", SpendLimit),
)
"""The API has no codes of its own for these; this is what it says."""
_SAID: dict[type[ProviderError], str] = {
    RateLimited: "Claude's rate limit is reached",
    Overloaded: "Claude is overloaded",
    AccessDenied: "Claude refused the key",
    SpendLimit: "the account has reached its spending limit for Claude",
    ModelGone: "Claude does not have this model",
    InvalidRequest: "Claude refused the request",
    PrefixMismatch: "Claude refused the request",
    ContextTooLong: "the conversation is too long for Claude",
}
"""Beginning of a message about such an error."""


def body_of(request: TurnRequest, *, key: str = "", caching: bool = True) -> dict[str, Json]:
    """The request's body, with marks for the prompt cache, and a hash of whom it is for that tells nobody who that is."""
    body: dict[str, Json] = request.to_json()
    if request.drop and shipped(request.model).bound:
        thinking = body.get("thinking") or {"type": "adaptive"}
        if thinking["type"] == "adaptive":
            body["thinking"] = {**thinking, "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    if request.user:
        user = hmac.new(key.encode(), request.user.encode(), "sha256").hexdigest()
        body["metadata"] = {"user_id": user}
    return _cached(body, request.cache) if caching and request.cache != "off" else body


def _cached(body: dict[str, Json], life: str) -> dict[str, Json]:
    """Ask to cache what the next call repeats: tools, system, and the conversation up to its end.

    Four marks are allowed, and all live as long. The second last user's message has one too: with many tool calls in a
    turn, the API would not find the end of the earlier conversation by itself.
    """
    mark = {"type": "ephemeral", **({"ttl": life} if life != "5m" else {})}
    marked = dict(body)
    if "system" in marked:
        marked["system"] = _last_marked(marked["system"], mark)
    if "tools" in marked:
        marked["tools"] = _told_marked(marked["tools"], mark)
    messages = list(marked["messages"])
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    for index in users[-2:]:
        messages[index] = {**messages[index], "content": _last_marked(messages[index]["content"], mark)}
    return {**marked, "messages": messages}


def _told_marked(tools: list[Json], mark: Json) -> list[Json]:
    """Tools of which the last that the model is told of at once has a mark: others may have none."""
    last = max(index for index, tool in enumerate(tools) if not tool.get("defer_loading"))
    return [{**tool, "cache_control": mark} if index == last else tool for index, tool in enumerate(tools)]


def _last_marked(items: list[Json], mark: Json) -> list[Json]:
    return [*items[:-1], {**items[-1], "cache_control": mark}]


def _error_of(status: int | None, body: Json, *, headers: Mapping[str, str], fallback: str) -> ProviderError:
    """The error that a refusal means. `status` is None for an error inside a stream, which has only its type."""
    told = body.get("error") if isinstance(body, dict) else None
    told = told if isinstance(told, dict) else {}
    details = told.get("details")
    details = details if isinstance(details, dict) else {}
    cause = details.get("error_code")
    message = str(told.get("message") or fallback)
    kind = _CODES.get(cause) if isinstance(cause, str) else None
    kind = kind or _STATUSES.get(status or 0) or _TYPES.get(str(told.get("type")))
    if kind is None:
        kind = InvalidRequest if status is not None and 400 <= status < 500 else Unavailable
    if kind is InvalidRequest:
        kind = next((other for words, other in _WORDS if words in message.lower()), kind)
    asked = headers.get("request-id") or (body.get("request_id") if isinstance(body, dict) else None)
    error = kind(
        f"{_SAID.get(kind, 'Claude failed')}: {message}",
        request_id=asked if isinstance(asked, str) else None,
        retry_after=_seconds(headers),
        status=status,
        error_code=cause if isinstance(cause, str) else None,
        told={name: value for name, value in details.items() if name != "error_code"},
    )
    if status is not None and headers.get("x-should-retry") in ("true", "false"):
        error.retryable = headers["x-should-retry"] == "true"
    return error


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Return the wait in seconds from the headers; None if it is missing, a date or nonsense."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    return None
