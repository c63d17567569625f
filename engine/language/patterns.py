"""Patterns of values: texts in which `*` stands for anything. Pure.

In a pattern that allows something, `*` stands for nothing that a shell acts on and for no `..`: `git status*` is no way to run
something else.
"""

from __future__ import annotations

import re

from engine.language.codec import Json, canonical

_SHELL = ";&|`$<>()\\\x7f" + "".join(map(chr, range(32)))
"""Shell characters, which `*` does not match in an allowing rule."""


def fits(wanted: Json, given: Json, exact: bool) -> bool:
    """True if a value is what a rule or a grant wants. `exact` is for those that allow: there `*` is nothing a shell acts on."""
    if not isinstance(wanted, str) or not isinstance(given, str):
        return canonical(wanted) == canonical(given)
    if not _matches(wanted, given):
        return False
    # Each literal part of the pattern has its like in the text: a sign that the text has more often stands where a `*` does.
    up = wanted.replace("*", "\n")
    return not exact or (
        all(given.count(sign) == wanted.count(sign) for sign in _SHELL) and _ways_up(given) == _ways_up(up)
    )


def _matches(pattern: str, text: str) -> bool:
    """True if a pattern is the whole of a text. Each part is looked for once, so the time grows with the text alone."""
    start, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    *middle, end = rest
    left = len(text) - len(end)
    if not text.startswith(start) or not text.endswith(end) or left < len(start):
        return False
    at = len(start)
    for part in middle:
        found = text.find(part, at, left)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _ways_up(text: str) -> int:
    """Return the number of pairs of adjacent dots."""
    return sum(len(dots) - 1 for dots in re.findall(r"\.{2,}", text))
