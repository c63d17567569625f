"""Regular expressions in flows, by RE2: its time is linear in the length of the text, so no pattern can hang a bot. The
price is that it has no backreferences and no look-around."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from engine.language.codec import Json

MAX_PATTERN = 1000
"""The most characters of a pattern."""
MAX_REPLACED = 2**20
"""The most characters that a replacement adds."""
_MAX_MEMORY = 2**20


class BadPattern(ValueError):
    """The text is not a regular expression for RE2; the message says why."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """The pattern, ready to search with. Raises `BadPattern`."""
    import re2  # loaded by the first pattern

    if len(pattern) > MAX_PATTERN:
        raise BadPattern(f"a pattern has at most {MAX_PATTERN} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0] if error.args else "it cannot be read"
        told = why.decode() if isinstance(why, bytes) else str(why)
        raise BadPattern(f"{pattern[:60]!r} is not a regular expression: {told}") from None


def found(text: str, pattern: str) -> list[Json] | None:
    """Return the first match of the pattern, then its groups; None if there is none."""
    match = compiled(pattern).search(text)
    return None if match is None else [match.group(0), *match.groups()]


def replaced(text: str, pattern: str, new: str, count: int) -> str:
    """Replace the matches of the pattern; `\\1` in `new` is the first group."""
    search = compiled(pattern)
    if sum(1 for _ in search.finditer(text)) * len(new) > MAX_REPLACED:
        raise BadPattern(f"the text would grow by more than {MAX_REPLACED} characters")
    result: str = search.sub(new, text, max(count, 0))
    return result
