"""What can go wrong with a turn. Vendors' errors are translated into these at the edge."""

from __future__ import annotations

from typing import ClassVar

from engine.language.errors import SaysoError
from engine.messages.turns import Usage


class ProviderError(SaysoError):
    """A turn failed. `retryable`: the same request may succeed later.

    `usage` is what the provider has counted until then (it is paid for), `request_id` what its support asks for.
    """

    code = "provider"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        request_id: str | None = None,
        retry_after: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        self.request_id = request_id
        self.retry_after = retry_after
        """Seconds that the provider asks us to wait; None where it said nothing."""
        self.usage = usage or Usage()
        super().__init__(f"{message} (request {request_id})" if request_id else message)


class RateLimited(ProviderError):
    """Too many requests or tokens in a minute (429); wait for `retry_after` where it is given."""

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
    """What came back is not what the protocol allows: no event stream, broken JSON, events out of order."""

    code = "bad_response"


class StreamCut(Unavailable):
    """The stream ended without a stop reason: the answer is not whole and must not be used."""

    code = "stream_cut"


class InvalidRequest(ProviderError):
    """The request is wrong and will be refused every time; the message says what is wrong with it."""

    code = "request_invalid"


class ContextTooLong(InvalidRequest):
    """The conversation does not fit into the model's context: compact it."""

    code = "context_too_long"


class AccessDenied(ProviderError):
    """The key is missing, wrong, or not allowed to do this (401, 402, 403)."""

    code = "access_denied"


class ScriptError(ProviderError):
    """The script of the scripted provider cannot be read, has ended, or expected something else."""

    code = "script"
