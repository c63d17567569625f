"""Events as bytes: what is refused when one is written, and when one is read."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from engine.journal import events as ev
from engine.journal.events import decode_event
from engine.language.codec import decode, encode
from engine.language.errors import MalformedJournal, NotJson, SchemaTooNew
from tests.support.engine import START

DONE = ev.NodeCompleted(seq=3, timestamp=START, path="a", node_id="a", output={"code": 0})


@pytest.mark.parametrize("payload", [math.nan, math.inf, {"a"}, 2**64, {1: "a"}, {"a": "\ud800"}, b"a"])
def test_what_is_no_json_is_refused_where_an_event_is_written(payload: Any) -> None:
    """An event is written by the codec: a number, key or text that JSON cannot carry is not a silent `null`."""
    with pytest.raises(NotJson):
        replace(DONE, output={"inside": [payload]}).to_bytes()


@pytest.mark.parametrize(
    "change", [{"nodeId": 1}, {"path": []}, {"seq": "3"}, {"seq": True}, {"timestamp": None}, {"type": None}]
)
def test_reading_an_event_checks_each_field(change: dict[str, Any]) -> None:
    """A field of another type is a malformed journal: making an event checks nothing, reading one does."""
    data = encode({**DONE.to_wire(), **change})
    with pytest.raises(MalformedJournal):
        decode_event(data)


def test_a_malformed_event_is_named() -> None:
    """The error names the number and the type of the event, and the field."""
    data = encode({**DONE.to_wire(), "nodeId": 1})
    with pytest.raises(MalformedJournal, match=r"event 3 \(node:completed\).*nodeId"):
        decode_event(data)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"3", b"\xff", b'{"type": "node:completed"', b"[" * 2000, b"{}"]
)
def test_bytes_that_are_no_event_are_a_malformed_journal(data: bytes) -> None:
    """Damage is told as damage, whatever it looks like."""
    with pytest.raises(MalformedJournal):
        decode_event(data)


@pytest.mark.parametrize("change", [{"type": "node:dreamt"}, {"mood": "good"}])
def test_what_a_newer_release_wrote_is_left_to_it(change: dict[str, Any]) -> None:
    """An event or a field that this release does not know is not a damage."""
    with pytest.raises(SchemaTooNew):
        decode_event(encode({**DONE.to_wire(), **change}))


def test_an_event_never_changes() -> None:
    """An event is a value: nothing can be set."""
    with pytest.raises(AttributeError):
        DONE.seq = 4  # type: ignore[misc]


def test_absent_fields_are_left_out() -> None:
    """A field that is null is not written, and one that is false is."""
    failed = ev.NodeFailed(seq=4, timestamp=START, node_id="a", error={}, attempt=1, contained=False)
    wire = {"type": "node:error", "seq": 4, "timestamp": START, "nodeId": "a", "error": {}, "attempt": 1}
    assert decode(failed.to_bytes()) == {**wire, "contained": False}
