"""Numbers in sentences: nouns with their number, and places in an order. Pure."""

from __future__ import annotations


def plural(count: int, word: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`, `11th`, `21st`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
