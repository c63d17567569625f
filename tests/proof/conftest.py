"""How long the proof is, and by which seed its points are chosen."""

from __future__ import annotations

import pytest

from tests.support.proving import PROVE, PROVE_SEED


@pytest.fixture(scope="session")
def long() -> bool:
    """Whether the long version runs (`make prove`)."""
    return PROVE


def pytest_report_header() -> str | None:
    """Say the seed."""
    return f"the points are chosen by PROVE_SEED={PROVE_SEED}" if PROVE else None


@pytest.fixture(autouse=True)
def _no_threads(inline: None) -> None:
    """What is proved here does not depend on the thread of the store; real processes have it."""
