"""Numbers in sentences: nouns with their number, places in an order, durations, and the columns of a text. Pure."""

from __future__ import annotations


def plural(count: int, word: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`, `11th`, `21st`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def elapsed(seconds: float) -> str:
    """A duration in two units at most: `<1s`, `12s`, `3m 12s`, `2h 5m`, `3d 4h`."""
    whole = max(0, int(seconds))
    if whole < 1:
        return "<1s"
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit} {rest}{name}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def cells(text: str) -> int:
    """The columns that a text takes where all letters are equally wide: two for each East Asian letter or emoji, none for a combining mark."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(
        0 if category(char) in ("Mn", "Me", "Cf") else 1 + (east_asian_width(char) in "WF") for char in text
    )
