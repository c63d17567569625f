"""How much of a long search runs: a sample in `make test`, much more in `make prove` (which sets PROVE=1), all with PROVE_ALL=1."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
PROVE = bool(os.environ.get("PROVE"))
PROVE_ALL = bool(os.environ.get("PROVE_ALL"))
PROVE_SEED = int(os.environ.get("PROVE_SEED") or datetime.now(UTC).strftime("%Y%m%d"))
"""What a search begins with that is too long to be run whole: another one each day."""
FIRST = random.Random(PROVE_SEED).randrange(900) * 1_000
"""Where the seeds of a simulation begin for that search, of a million."""


def tries(count: int) -> int:
    """How many generated values a search takes: a sixth of them in `make test`, but at least five."""
    return count if PROVE else max(count // 6, min(count, 5))


def sampled(values: Sequence[Any], kept: Sequence[Any] | int) -> list[Any]:
    """All values, of which `make test` takes those that are kept, or so many from the first to the last."""
    if isinstance(kept, int):
        kept = [values[number * (len(values) - 1) // max(kept - 1, 1)] for number in range(kept)]
    assert all(value in values for value in kept), [value for value in kept if value not in values]
    return [value if value in kept else pytest.param(value, marks=pytest.mark.long) for value in values]


def part(points: Sequence[T], most: int, what: str) -> list[T]:
    """Up to so many of these points, in their order; the same ones for the same seed and `what`."""
    if PROVE_ALL or len(points) <= most:
        return list(points)
    chosen = random.Random(f"{PROVE_SEED}:{what}").sample(range(len(points)), most)
    return [points[index] for index in sorted(chosen)]
