"""How far a node is, for people to see."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meter:
    """How far a node is, for people to see: so much of `total`, in whatever it counts, and a few words."""

    done: float
    total: float
    text: str = ""

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return min(1.0, max(0.0, self.done / self.total)) if self.total > 0 else 0.0


def no_meter(meter: Meter) -> None:
    """Where nobody looks."""
