"""Outcome of a model call for the core."""

from __future__ import annotations

from collections.abc import Mapping

from engine.language.codec import Json, copy
from engine.language.errors import NotJson
from engine.messages.errors import BadResponse, ProviderError
from engine.messages.turns import TurnResult, Usage
from engine.nodes.runtime.runner import Completed, Failed, Outcome


def completed(
    result: TurnResult,
    opened: Mapping[str, Json] | None = None,
    *,
    signed: bool = False,
) -> Outcome:
    """An answer as an outcome; see `TurnRunner.__call__`."""
    output = {
        "content": list(result.content),
        "stopReason": result.stop_reason,
        "usage": result.usage.to_json(),
        "model": result.model,
        "interrupted": result.interrupted,
        "requestId": result.request_id,
        **({"cutCall": True} if result.cut_call else {}),
        **({"signed": True} if signed else {}),
        **({"stopDetails": result.stop_details} if result.stop_details else {}),
        **({"dropped": result.dropped} if result.dropped else {}),
        **({"container": result.container} if result.container else {}),
        **({"parts": list(result.parts)} if result.parts else {}),
        **({"context": result.context} if result.context is not None else {}),
        **({"searches": result.searches} if result.searches else {}),
        **({"opened": opened} if opened else {}),
    }
    try:
        return Completed(copy(output))
    except NotJson as error:
        return failed(BadResponse(f"the answer cannot be stored ({error})", usage=result.usage))


def failed(error: ProviderError) -> Failed:
    """An error as an outcome; its details are `{retryable, retryAfter, usage, requestId}`, `retryAfter` in seconds, and
    `status`, `errorCode` and `told` where the provider said them (see `ProviderError`)."""
    said = {"status": error.status, "errorCode": error.error_code, "told": error.told}
    return Failed(
        error.code,
        str(error),
        {
            "retryable": error.retryable,
            "retryAfter": error.retry_after,
            "usage": error.usage.to_json(),
            "requestId": error.request_id,
            **{name: value for name, value in said.items() if value},
        },
    )


def no_details() -> dict[str, Json]:
    """The details of a failure of which the provider said nothing."""
    return {"retryable": False, "retryAfter": None, "usage": Usage().to_json(), "requestId": None}


def unsent(code: str, message: str, *, retryable: bool = False) -> Failed:
    """A failure before anything was sent: it costs nothing."""
    return Failed(code, message, {**no_details(), "retryable": retryable, "unsent": True})
