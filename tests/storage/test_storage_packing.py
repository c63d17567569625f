"""How values are packed in rows: given back byte for byte, small, and read forever."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.language.errors import Corrupt
from engine.storage import packing
from engine.storage.packing import packed, packed_together, unpacked, unpacked_apart

HISTORIES = Path(__file__).parents[1] / "histories"
PACKED_ONCE = bytes.fromhex("019b74449140cfc8bcf68811be4e9005d6de0e00")
"""What this release stored. It is never changed: rows in homes are like it."""
EVENTS = [b'{"type":"flow:completed","seq":7}', b'{"type":"session:end","seq":8,"status":"complete"}']


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_events_come_back_byte_for_byte(events: list[bytes]) -> None:
    """Whatever the bytes are, and however many events a commit has."""
    assert unpacked_apart(packed_together(events)) == events


@given(st.binary(max_size=2000))
def test_values_come_back_byte_for_byte(value: bytes) -> None:
    """One value alone."""
    assert unpacked(packed(value)) == value


def test_what_was_packed_by_this_release_is_read_for_ever() -> None:
    """The dictionary is part of the format: another one takes another mark."""
    assert unpacked_apart(PACKED_ONCE) == EVENTS
    assert hashlib.sha256(packing._DICTIONARY).hexdigest()[:16] == "93d998782fc75147"


@pytest.mark.parametrize(
    "data", [b"", b"\x02rest", b"[1]", packed(b"{}")[:-1], packed(b"{}") + b"x", b"\x01\xff"]
)
def test_what_nobody_packs_so_is_refused(data: bytes) -> None:
    """A later mark, a cut value, and one with something behind it."""
    for read in (unpacked, unpacked_apart):
        with pytest.raises(Corrupt):
            read(data)


def test_packing_pays() -> None:
    """The events of the golden histories, two in a commit, take less than a third."""
    lines = [line for file in HISTORIES.glob("*/*.jsonl") for line in file.read_bytes().splitlines() if line]
    pairs = [lines[first : first + 2] for first in range(0, len(lines), 2)]
    assert sum(len(packed_together(pair)) for pair in pairs) * 3 < sum(map(len, lines))
