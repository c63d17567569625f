"""What the Messages API wants to hear, and what its refusals mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from engine.language.codec import Json
from engine.messages.errors import (
    AccessDenied,
    ContextTooLong,
    InvalidRequest,
    Overloaded,
    ProviderError,
    RateLimited,
    Unavailable,
)
from engine.messages.turns import TurnRequest

SAMPLING_VERSION = "2023-06-01"
"""The last version of the API that takes a temperature; later ones refuse it for every model."""

_CACHE = {"cache_control": {"type": "ephemeral"}}

_TYPES: dict[str, type[ProviderError]] = {
    "rate_limit_error": RateLimited,
    "overloaded_error": Overloaded,
    "api_error": Unavailable,
    "timeout_error": Unavailable,
    "authentication_error": AccessDenied,
    "permission_error": AccessDenied,
    "billing_error": AccessDenied,
    "invalid_request_error": InvalidRequest,
    "not_found_error": InvalidRequest,
    "request_too_large": ContextTooLong,
}
_STATUSES: dict[int, type[ProviderError]] = {
    401: AccessDenied,
    402: AccessDenied,
    403: AccessDenied,
    408: Unavailable,
    409: Unavailable,
    413: ContextTooLong,
    429: RateLimited,
    529: Overloaded,
}
_TOO_LONG = ("prompt is too long", "exceed context limit", "exceeds the context window")
"""The API has no code of its own for this; these are its words."""


def body_of(request: TurnRequest, *, caching: bool) -> Json:
    """The request's body without its temperature (which goes another way), with marks for the prompt cache."""
    body = request.to_json()
    body.pop("temperature", None)
    return _cached(body) if caching else body


def _cached(body: Json) -> Json:
    """Ask to cache what the next call repeats: tools, system, and the conversation up to its end.

    Four marks are allowed. The second last user's message has one too: with many tool calls in a turn, the API would
    not find the end of the earlier conversation by itself.
    """
    marked = dict(body)
    for name in ("tools", "system"):
        if name in marked:
            marked[name] = _last_marked(marked[name])
    messages = list(marked["messages"])
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    for index in users[-2:]:
        messages[index] = {**messages[index], "content": _last_marked(messages[index]["content"])}
    return {**marked, "messages": messages}


def _last_marked(items: list[Json]) -> list[Json]:
    return [*items[:-1], {**items[-1], **_CACHE}]


def error_of(
    status: int | None,
    body: Json,
    *,
    headers: Mapping[str, str],
    fallback: str,
) -> ProviderError:
    """The error that a refusal means. `status` is None for an error inside a stream, which has only its type."""
    told = body.get("error") if isinstance(body, dict) else None
    told = told if isinstance(told, dict) else {}
    message = str(told.get("message") or fallback)
    kind = _kind(status, str(told.get("type")), message)
    asked = headers.get("request-id") or (body.get("request_id") if isinstance(body, dict) else None)
    return kind(
        f"{_said(kind)}: {message}",
        request_id=asked if isinstance(asked, str) else None,
        retry_after=_seconds(headers),
    )


def _kind(status: int | None, told: str, message: str) -> type[ProviderError]:
    kind = _STATUSES.get(status or 0) or _TYPES.get(told)
    if kind is None:
        kind = InvalidRequest if status is not None and 400 <= status < 500 else Unavailable
    if kind is InvalidRequest and any(words in message.lower() for words in _TOO_LONG):
        return ContextTooLong
    return kind


def _said(kind: type[ProviderError]) -> str:
    """How a message about such an error begins."""
    return {
        RateLimited: "Claude's rate limit is reached",
        Overloaded: "Claude is overloaded",
        AccessDenied: "Claude refused the key",
        InvalidRequest: "Claude refused the request",
        ContextTooLong: "the conversation is too long for Claude",
    }.get(kind, "Claude failed")


def _seconds(headers: Mapping[str, str]) -> float | None:
    """What `retry-after` says, in seconds; None for a date or nonsense."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
