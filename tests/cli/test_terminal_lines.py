"""Lines of a terminal: as wide as it is, each choice on one of its own, and what a session continues with by itself."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import sys
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest
from immutables import Map

from bot.rendering.prompts import session_face
from bot.terminal.console import Paint, cells, fitted, table
from bot.terminal.follower import due_moments
from bot.terminal.screen import TerminalScreen, option_lines
from engine.journal.events import NodeStarted
from engine.journal.state import TimerRun
from engine.language.counting import plural
from tests.bot.rendering_cases import T1, prompt, session


@pytest.fixture(params=[80, 120])
def terminal(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[int, int, TextIO]]:
    """A terminal of so many columns: the width, the end that is read, and the one that is written to."""
    monkeypatch.delenv("COLUMNS", raising=False)
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, request.param, 0, 0))
    with os.fdopen(writer, "w", encoding="utf-8") as out:
        yield request.param, reader, out
    os.close(reader)


async def test_the_line_of_what_works_never_goes_on_in_the_next_row(
    terminal: tuple[int, int, TextIO],
) -> None:
    """A line that was wrapped could not be wiped, and each tenth of a second would leave one more behind."""
    width, reader, out = terminal
    screen = TerminalScreen(out)
    for number in range(12):
        path = f"hosts[{number}]/restart-the-service-and-wait"
        event = NodeStarted(
            seq=number + 1,
            timestamp=T1,
            path=path,
            node_id="restart",
            node_type="shell",
            node_index=0,
            epoch=1,
            attempt=1,
        )
        screen.narrate(session(), event)
    await asyncio.sleep(0)
    written = os.read(reader, 65536).decode()
    screen.close()
    line = written.rpartition("\x1b[2K")[2]
    assert line.endswith("…")
    assert 0 < cells(line.replace("\x1b[34m", "").replace("\x1b[0m", "")) < width


@pytest.mark.parametrize(
    ("text", "wide"), [("plan", 4), ("計画", 4), ("🟡 x", 4), ("e\u0301", 1), ("한글", 4), ("", 0)]
)
def test_a_letter_takes_the_columns_that_a_terminal_gives_it(text: str, wide: int) -> None:
    """Two for East Asian letters and emojis, none for an accent that is on another letter."""
    assert cells(text) == wide


def test_a_text_is_cut_where_its_columns_end() -> None:
    """Never by more than there is room for, however wide its letters are."""
    assert fitted("計画計画", 8) == "計画計画"
    assert fitted("計画計画", 7) == "計画計…"
    assert fitted("計画計画", 6) == "計画…"


def test_columns_stand_below_each_other_whatever_is_written_in_them() -> None:
    """The second column begins at the same place in each line."""
    lines = table(["flow", "state"], [["配備", "waiting"], ["deploy", "running"]], Paint(sys.stderr))
    begin = {
        cells(line[: line.index(word)])
        for line, word in zip(lines, ("state", "waiting", "running"), strict=True)
    }
    assert begin == {8}


def test_a_choice_is_one_line_whatever_its_label_is() -> None:
    """A label with a line of its own could pass for another choice."""
    options = [{"value": "a", "label": "Keep\n2) Delete it all"}, {"value": "b", "label": "Stop"}]
    one = prompt("ask", options=options)
    assert option_lines(session_face(session(one), one, None))[:2] == ["1) Keep 2) Delete it all", "2) Stop"]


@pytest.mark.parametrize("purpose", ["wait", "retry", "followUp"])
def test_a_session_that_goes_on_by_itself_is_not_waited_for_without_a_wish(purpose: str) -> None:
    """Each of these times is known: a command that was not told to wait says it, and ends."""
    timer = TimerRun("t", "helper", T1, purpose, None)
    assert due_moments(session(timers=Map({"t": timer}))) == [T1]


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1200, "1,200 rows")]
)
def test_a_number_and_its_noun_agree(count: int, words: str) -> None:
    """One row, all others rows."""
    assert plural(count, "row") == words
