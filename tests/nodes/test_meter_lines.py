"""Lines in which a program says how far it is: shown, taken out of its output, whatever pieces they come in."""

from __future__ import annotations

import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from engine.nodes.runtime.process import MeterLines
from engine.nodes.runtime.redact import Redactor
from engine.nodes.runtime.runner import Completed
from engine.nodes.runtime.shell import shell
from engine.nodes.types.spec import Meter
from tests.nodes.nodekit import Context

OUTPUT = (
    b"before\n::progress 1/4 copying\nmiddle ::progress 9/9\n::progress 50%\n::progressive\n::progress nothing\n"
    b"\n::progress 2.5 / 4 the  token hunter2\nafter\n::progress 4/4"
)
PASSED = b"before\nmiddle ::progress 9/9\n::progressive\n::progress nothing\n\nafter\n"


@given(st.lists(st.integers(0, len(OUTPUT)), max_size=30))
def test_progress_is_read_whatever_pieces_it_comes_in(cuts: list[int]) -> None:
    """What is no such line passes byte by byte, and a secret is not shown anywhere."""
    shown: list[Meter] = []
    lines = MeterLines(shown.append, Redactor({"TOKEN": "hunter2"}))
    places = [0, *sorted(cuts), len(OUTPUT)]
    passed = b"".join(lines.feed(OUTPUT[a:b]) for a, b in itertools.pairwise(places))
    assert passed + lines.rest() == PASSED
    assert shown == [
        Meter(1, 4, "copying"),
        Meter(50, 100),
        Meter(2.5, 4, "the token [secret TOKEN]"),
        Meter(4, 4),
    ]


async def test_a_program_shows_how_far_it_is_only_where_the_flow_says_so(tmp_path: Path) -> None:
    """With `progress: true` the lines are no output; without it they are."""
    script = "echo one; echo '::progress 3/10 copying'; echo two"
    shown: list[Meter] = []
    ctx = Context(tmp_path).build(meter=shown.append)
    done = await shell({"script": script, "progress": True}, ctx)
    assert isinstance(done, Completed)
    assert done.output["stdout"] == "one\ntwo\n"
    assert shown == [Meter(3, 10, "copying")]
    plain = await shell({"script": script}, ctx)
    assert isinstance(plain, Completed)
    assert "::progress 3/10" in plain.output["stdout"]
    assert len(shown) == 1
