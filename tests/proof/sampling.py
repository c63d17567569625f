"""Which points the long version takes where there are more than it has time for: a random part of them, by a seed.

`PROVE_SEED` chooses the seed (else the day does), `PROVE_ALL=1` takes every point.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

T = TypeVar("T")
SEED = int(os.environ.get("PROVE_SEED") or datetime.now(UTC).strftime("%Y%m%d"))
ALL = bool(os.environ.get("PROVE_ALL"))


def part(points: Sequence[T], most: int, what: str) -> list[T]:
    """Up to so many of these points, in their order; the same ones for the same seed and `what`."""
    if ALL or len(points) <= most:
        return list(points)
    chosen = random.Random(f"{SEED}:{what}").sample(range(len(points)), most)
    return [points[index] for index in sorted(chosen)]
