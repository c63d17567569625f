"""What becomes of a model call that failed: which failures are waited out, how long, and who may cut that short. Pure.

A provider that is overloaded, limits the rate, fails or cannot be reached ends no conversation: the call is made again
after growing waits, each a durable timer that holds nothing, until the flow's `limits.deadline` has passed since the call
first began (an agent's own `timeout` ends it before). Whoever writes to the agent meanwhile has it tried at once.
A `retry` of the flow's author is kept to as it is written, for these failures too.
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
    """What is done about one kind of failure before the agent fails with it."""

    waits: bool = False
    """Tried again until the deadline, however often."""
    unpaid: bool = False
    """It was refused before any answer, and costs nothing."""


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
"""By the type of the error; any other failure is tried again as `retry` says, where that can help, and may have been paid
for."""


def _remedy(error: Mapping[str, Json]) -> Remedy:
    return REMEDIES.get(str(error.get("type")), Remedy())


def tries_again(deadline: float, run: NodeRun, retry: Retry, error: Mapping[str, Json], due_at: str) -> bool:
    """Whether another attempt follows at `due_at`; `deadline` is the flow's, in seconds."""
    if retry.until_deadline and _remedy(error).waits and run.started_at is not None:
        return due_at < timestamps.after(run.started_at, deadline)
    return run.failures + 1 < retry.attempts


def unpaid(run: NodeRun, error: Mapping[str, Json]) -> bool:
    """Whether a model call that failed cost nothing: not sent, or refused and nothing was counted."""
    given = error.get("details")
    details: Mapping[str, Json] = given if isinstance(given, dict) else {}
    used = details.get("usage")
    refused = _remedy(error).unpaid and not (isinstance(used, dict) and any(used.values()))
    return run.type == TURN and (refused or details.get("unsent") is True)


def waited_out(run: NodeRun | None) -> bool:
    """Whether this is a model call that waits for its provider."""
    if run is None or run.type != TURN or run.status != "retrying":
        return False
    return _remedy(run.error or {}).waits
