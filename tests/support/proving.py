"""How much of a long search runs: a sample in `make test`, all of it in `make prove` (which sets PROVE=1)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

PROVE = bool(os.environ.get("PROVE"))


def tries(count: int) -> int:
    """How many generated values a search takes: a sixth of them in `make test`, but at least five."""
    return count if PROVE else max(count // 6, min(count, 5))


def sampled(values: Sequence[Any], kept: Sequence[Any] | int) -> list[Any]:
    """All values, of which `make test` takes those that are kept, or so many from the first to the last."""
    if isinstance(kept, int):
        kept = [values[number * (len(values) - 1) // max(kept - 1, 1)] for number in range(kept)]
    assert all(value in values for value in kept), [value for value in kept if value not in values]
    return [value if value in kept else pytest.param(value, marks=pytest.mark.long) for value in values]
