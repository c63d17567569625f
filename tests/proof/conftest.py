"""How much of the proof was run: counts that the tests add to, said at the end."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

from tests.proof.sampling import SEED

HIT: Counter[str] = Counter()


@pytest.fixture(scope="session")
def hit() -> Counter[str]:
    """What was tried so far, by what it is."""
    return HIT


@pytest.fixture(scope="session")
def long() -> bool:
    """Whether the long version runs (`make prove`)."""
    return bool(os.environ.get("PROVE"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many points were hit."""
    if HIT:
        terminalreporter.section("proof: what was tried, and how often")
        if os.environ.get("PROVE"):
            terminalreporter.write_line(f"the points were chosen by PROVE_SEED={SEED}")
        for name, count in sorted(HIT.items()):
            terminalreporter.write_line(f"{count:>8,}  {name}")
