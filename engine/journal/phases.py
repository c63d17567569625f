"""Phases of a session, and what they are called outside."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

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
"""What a phase is called outside; an ended session is `complete`, `failed` or `aborted`."""
