"""Phases of a session, and their public names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

Phase: TypeAlias = Literal[
    "idle", "running", "waiting", "pausing", "held", "unreachable", "finalizing", "ended"
]
Status: TypeAlias = Literal["idle", "running", "paused", "complete", "failed", "aborted"]

ENDED: tuple[Status, ...] = ("complete", "failed", "aborted")
"""Statuses after which a session takes no more commands."""

PHASES: tuple[Phase, ...] = get_args(Phase)

STATUS: dict[Phase, Status] = {
    "idle": "idle",
    "running": "running",
    "waiting": "paused",
    "pausing": "running",
    "held": "paused",
    "unreachable": "paused",
    "finalizing": "running",
}
"""Public status of each phase; an ended session is `complete`, `failed` or `aborted`."""

REJECTED = "rejected"
"""Error type of a rejected approval, and of everything that fails with it."""

_STANDINGS = {"waiting": "waiting", "held": "paused", "unreachable": "out of reach"}
_WORDS = {"idle": "not started", "complete": "completed", "aborted": "cancelled"}


def standing(status: str, phase: str, error: Mapping[str, Any] | None = None) -> str:
    """The one word for a session's state, for lists and messages: *waiting* is for people, a lock or a time, *paused* by
    somebody's word, *rejected* by a decision, *failed* by a fault. `status` of the wire has `paused` for all that waits."""
    if status == "failed" and (error or {}).get("type") == REJECTED:
        return REJECTED
    return _STANDINGS.get(phase, status)


def in_words(standing: str) -> str:
    """The word that people read for a `standing`, which names the beginning and two of the ends as the wire does."""
    return _WORDS.get(standing, standing)
