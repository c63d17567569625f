"""How far a reply travels."""

from __future__ import annotations

from tests.support.trace import trace_of_a_reply

MOST_FILES = 92


def test_a_typed_reply_passes_few_files() -> None:
    """From the payload to the next question in the thread a reply passes no more files than a reader can follow."""
    trace = trace_of_a_reply()
    assert "engine/decide/replies.py" in trace
    assert len(trace) <= MOST_FILES, "\n".join(trace)
