"""Tables: as Slack's block, as text in columns, and whole as CSV. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from bot.rendering.blocks import Block, size
from bot.rendering.text import clip, one_line
from engine.language.codec import Json, clean_text, encode

MOST_ROWS = 100
"""Of a table block, the one with the columns' names among them."""
MOST_CELLS = 10_000
"""Characters of all cells of a message, as Slack counts them."""
_CELL = 400
_WIDTH = 40
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def rows_of(columns: Sequence[str], rows: Sequence[Json]) -> list[list[str]]:
    """The cells of a table as text, with as many in each row as there are columns or more."""
    return [_row(columns, row) for row in rows]


def _row(columns: Sequence[str], row: Json) -> list[str]:
    if isinstance(row, Mapping):
        return [_text(row.get(name)) for name in columns]
    cells = [_text(cell) for cell in row]
    return cells + [""] * (len(columns) - len(cells))


def _text(cell: Json) -> str:
    if cell is None:
        return ""
    return clean_text(cell)[0] if isinstance(cell, str) else encode(cell).decode()


def table_block(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> tuple[Block, bool]:
    """As many of the first rows as Slack takes and `room` units hold, and whether that is all of the table.

    Cells are plain text, in which nothing is a mention or a link.
    """
    block: Block = {"type": "table", "rows": [_cells(columns)]}
    room -= size([block])
    cells = sum(map(len, columns))
    whole = all(len(row) <= len(columns) for row in rows)
    for row in rows:
        made = _cells(row[: len(columns)])
        room -= size(made) + 1
        cells += sum(len(cell["text"]) for cell in made)
        if room < 0 or cells > MOST_CELLS or len(block["rows"]) >= MOST_ROWS:
            return block, False
        block["rows"].append(made)
        whole = whole and all(len(cell) <= _CELL for cell in row)
    return block, whole


def _cells(row: Sequence[str]) -> list[Block]:
    # Slack takes no empty cell.
    return [{"type": "raw_text", "text": one_line(cell, _CELL) or " "} for cell in row]


def csv_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The whole table as CSV. What a spreadsheet would take for a formula gets an apostrophe in front."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in (columns, *rows):
        writer.writerow([_inert(cell) for cell in row])
    return out.getvalue()


def _inert(cell: str) -> str:
    try:
        float(cell)
    except ValueError:
        return f"'{cell}" if cell.startswith(_FORMULA) else cell
    return cell


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], most: int = 60) -> str:
    """The first rows as lines of text with the columns below each other."""
    lines = [[clip(one_line(cell, _WIDTH), _WIDTH) for cell in row] for row in (columns, *rows[:most])]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    made = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)) for line in lines]
    made.insert(1, "  ".join("─" * width for width in widths))
    more = len(rows) - most
    return "\n".join([line.rstrip() for line in made] + ([f"… {more:,} more rows"] if more > 0 else []))
