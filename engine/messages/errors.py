"""Errors of a turn. Vendors' errors are translated into these at the edge."""

from __future__ import annotations

from collections.abc import Mapping

from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.messages.turns import Usage


class ProviderError(SaysoError):
    """A turn failed. `retryable`: the same request may succeed later.

    `usage` is the provider's count so far (it is charged), `request_id` is for the provider's support, `error_code` the
    provider's own name of the cause, and `told` its message.
    """

    code = "provider"
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        request_id: str | None = None,
        retry_after: float | None = None,
        usage: Usage | None = None,
        status: int | None = None,
        error_code: str | None = None,
        told: Mapping[str, Json] | None = None,
    ) -> None:
        self.request_id = request_id
        self.retry_after = retry_after
        """Seconds that the provider asks us to wait, or None."""
        self.usage = usage or Usage()
        self.status = status
        """HTTP status; None for an error inside a stream, or without a response."""
        self.error_code = error_code
        self.told = dict(told or {})
        super().__init__(f"{message} (request {request_id})" if request_id else message)


class RateLimited(ProviderError):
    """Too many requests or tokens in a minute (429); wait for `retry_after` if it is given."""

    code = "rate_limited"
    retryable = True


class Overloaded(ProviderError):
    """The provider has too much to do for everybody (529)."""

    code = "overloaded"
    retryable = True


class Unavailable(ProviderError):
    """The provider could not be reached, was too slow, or failed (5xx)."""

    code = "unavailable"
    retryable = True


class BadResponse(Unavailable):
    """The response violates the protocol: no event stream, broken JSON, events out of order."""

    code = "bad_response"


class StreamCut(Unavailable):
    """The stream ended without a stop reason: the answer is not whole and must not be used."""

    code = "stream_cut"


class InvalidRequest(ProviderError):
    """The request is wrong and will be refused every time; the message names the fault."""

    code = "request_invalid"


class ContextTooLong(InvalidRequest):
    """The conversation does not fit into the model's context: compact it."""

    code = "context_too_long"


class PrefixMismatch(InvalidRequest):
    """Thinking in the conversation belongs to another beginning, which was changed. It can be dropped
    (`TurnRequest.drop`)."""

    code = "prefix_mismatch"


class AccessDenied(ProviderError):
    """Only an admin of sayso can help: the key is missing, wrong, or lacks permission (401, 403)."""

    code = "access_denied"


class SpendLimit(AccessDenied):
    """The account may spend no more, or its bill is not paid (402, and 429s that no waiting clears)."""

    code = "spend_limit"


class ModelGone(AccessDenied):
    """The model does not exist, or no longer (404)."""

    code = "model_not_found"


class ScriptError(ProviderError):
    """The script of the scripted provider cannot be read, has ended, or expected something else."""

    code = "script"
