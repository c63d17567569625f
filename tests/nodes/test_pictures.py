"""What is known of a picture by its bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.nodes.runtime.images import is_picture, picture_of
from tests.nodes.pictures import WEBP, gif, jpeg, png

WHOLE = [
    (png(640, 480), ("image/png", 640, 480)),
    (jpeg(800, 600), ("image/jpeg", 800, 600)),
    (gif(12, 7), ("image/gif", 12, 7)),
    *((data, ("image/webp", 1, 1)) for data in WEBP.values()),
]


@pytest.mark.parametrize(("data", "expected"), WHOLE)
def test_the_kind_and_the_size_are_read_from_the_bytes(data: bytes, expected: tuple[str, int, int]) -> None:
    """Each kind of picture says how many pixels it has."""
    assert picture_of(data) == expected


def test_a_real_picture_is_read() -> None:
    """One of our own screenshots."""
    shot = (Path(__file__).parents[2] / "docs" / "images" / "agent.png").read_bytes()
    found = picture_of(shot)
    assert found is not None
    assert found.kind == "image/png"
    assert min(found.width, found.height) > 300


@pytest.mark.parametrize(("data", "expected"), WHOLE)
def test_half_a_picture_is_none(data: bytes, expected: tuple[str, int, int]) -> None:
    """What was not written to its end would be refused with the whole conversation."""
    for part in range(12, len(data) - 1, 3):
        assert picture_of(data[:part]) is None
        assert is_picture(data[:part])


@given(st.sampled_from([data for data, _ in WHOLE]), st.integers(4, 40), st.binary(max_size=60))
def test_no_bytes_raise(data: bytes, keep: int, rest: bytes) -> None:
    """Whatever is behind the first bytes, it is a picture or it is none."""
    found = picture_of(data[:keep] + rest)
    assert found is None or min(found.width, found.height) > 0
