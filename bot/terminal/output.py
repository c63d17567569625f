"""Text for people and JSON for machines.

Whatever comes from flows, people or programs passes through `clean` before a terminal sees it: control characters
are spelled out, so that no reply can move the cursor or colour a decision.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

from engine.language.codec import Json
from engine.language.markup import shown

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}
_UNLIMITED = 1_000_000


class Paint:
    """Colours for one stream: none where it is no terminal, or `NO_COLOR` is set."""

    def __init__(self, stream: TextIO) -> None:
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self.on = stream.isatty() and not plain

    def __call__(self, style: str, text: str) -> str:
        """The text in a style of `_CODES`."""
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.on else text


def clean(text: str) -> str:
    """Anybody's text as a terminal may show it; lines stay lines."""
    return shown(text)


def one_line(text: str, most: int = 80) -> str:
    """The words of a text on one line, cut with an ellipsis."""
    words = clean(" ".join(text.split()))
    return words if len(words) <= most else words[: most - 1] + "…"


def plural(count: int, word: str) -> str:
    """`1 flow`, `2 flows`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def print_json(value: Json) -> None:
    """One JSON document on standard output."""
    import json

    json.dump(value, sys.stdout, indent=2, ensure_ascii=False, default=str)
    sys.stdout.write("\n")
    sys.stdout.flush()


def width() -> int:
    """Columns of the terminal, or as COLUMNS says; as many as are needed where a file or another program reads."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return _UNLIMITED
    return max(60, shutil.get_terminal_size((100, 24)).columns)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], paint: Paint) -> list[str]:
    """The rows in aligned columns; the last one is cut where the terminal ends."""
    widths = [max(len(row[column]) for row in [headers, *rows]) for column in range(len(headers) - 1)]
    room = max(20, width() - sum(widths) - 2 * len(widths))
    lines = []
    for number, row in enumerate([headers, *rows]):
        cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=False)]
        line = "  ".join([*cells, row[-1] if len(row[-1]) <= room else row[-1][: room - 1] + "…"]).rstrip()
        lines.append(paint("dim", line) if number == 0 else line)
    return lines
