"""Failed model calls: which failures are waited out, for how long, and what cuts the wait short. Pure.

A provider that is overloaded, limits the rate, fails or is unreachable ends no conversation: the call is repeated after
growing waits, each a durable timer that holds no resources, until the flow's `limits.deadline` has passed since the
call first began (an agent's own `timeout` ends it earlier). A message to the agent retries at once. A `retry` written
in the flow is followed exactly, for these failures too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.flow.node import Retry
from engine.journal.queries import TURN
from engine.journal.state import NodeRun
from engine.language import timestamps
from engine.language.codec import Json


class Remedy(NamedTuple):
    """Treatment of one kind of failure before the agent fails."""

    waits: bool = False
    """Tried again until the deadline, however often."""
    unpaid: bool = False
    """True if the call was refused before any answer, and costs nothing."""


REMEDIES: Mapping[str, Remedy] = {
    "overloaded": Remedy(waits=True, unpaid=True),
    "rate_limited": Remedy(waits=True, unpaid=True),
    "unavailable": Remedy(waits=True),
    "stream_cut": Remedy(waits=True),
    "request_invalid": Remedy(unpaid=True),
    "context_too_long": Remedy(unpaid=True),
    "prefix_mismatch": Remedy(unpaid=True),
    "access_denied": Remedy(unpaid=True),
    "spend_limit": Remedy(unpaid=True),
    "model_not_found": Remedy(unpaid=True),
    "script": Remedy(unpaid=True),
}
"""Remedies by error type; any other failure is retried as `retry` says, if it can help, and may have been charged."""


def _remedy(error: Mapping[str, Json]) -> Remedy:
    return REMEDIES.get(str(error.get("type")), Remedy())


def tries_again(deadline: float, run: NodeRun, retry: Retry, error: Mapping[str, Json], due_at: str) -> bool:
    """True if another attempt follows at `due_at`; `deadline` is the flow's, in seconds."""
    if retry.until_deadline and _remedy(error).waits and run.started_at is not None:
        return due_at < timestamps.after(run.started_at, deadline)
    return run.failures + 1 < retry.attempts


def unpaid(run: NodeRun, error: Mapping[str, Json]) -> bool:
    """True if a failed model call cost nothing: it was not sent, or refused with no usage counted."""
    given = error.get("details")
    details: Mapping[str, Json] = given if isinstance(given, dict) else {}
    used = details.get("usage")
    refused = _remedy(error).unpaid and not (isinstance(used, dict) and any(used.values()))
    return run.type == TURN and (refused or details.get("unsent") is True)


def waited_out(run: NodeRun | None) -> bool:
    """True if this is a model call that waits for its provider."""
    if run is None or run.type != TURN or run.status != "retrying":
        return False
    return _remedy(run.error or {}).waits
