"""One value for one field: from what was typed, clicked or given as JSON to what is stored.

Every reader raises `InvalidAnswer` with a sentence for whoever filled the field in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from engine.forms import options
from engine.forms.formats import read_format
from engine.language.codec import Json, clean_text
from engine.language.errors import InvalidAnswer

Field: TypeAlias = Mapping[str, Json]
"""A settled field; see `engine.forms`."""

MOST_TEXT = 3_000
"""UTF-16 units of a text in a form: what Slack's input holds."""
MOST_PATTERN_TEXT = 200
"""The same for a text with a `pattern`, unless the field has a `maxLength`: what is compared costs time."""

MOST_CHOSEN = 100
"""Options that can be chosen at once: what Slack's list holds."""

_TRUE = ("true", "yes", "y", "on", "1")
_FALSE = ("false", "no", "n", "off", "0")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,30}", re.ASCII)


def is_empty(raw: Json) -> bool:
    """Whether this says nothing: null, no text, an empty list."""
    return raw is None or raw == [] or (isinstance(raw, str) and not raw.strip())


def read_value(field: Field, raw: Json, *, by_number: bool = False) -> Json:
    """What is stored for something that is not empty. Reading that again gives the same. Raises `InvalidAnswer`."""
    if isinstance(raw, str):
        raw = clean_text(raw)[0]
    if field["type"] == "choice":
        return _option(field, raw, by_number)["value"]
    if field["type"] == "choices":
        return _choices(field, raw, by_number)
    return _READERS[field["type"]](field, raw)


def _string(field: Field, raw: Json) -> str:
    if not isinstance(raw, str):
        raise InvalidAnswer("Write a text.")
    text = raw if field.get("multiline") else raw.strip()
    if field.get("format"):
        text = read_format(field["format"], text)
    _refuse_length(field, text)
    pattern = field.get("pattern")
    if pattern and not compiled(pattern).search(text):
        raise InvalidAnswer(f"This must fit the pattern {pattern}")
    return text


def most_text(field: Field) -> int:
    """The most characters that a text may have."""
    least = MOST_PATTERN_TEXT if field.get("pattern") else MOST_TEXT
    return min(int(field.get("maxLength") or least), MOST_TEXT)


def units(text: str) -> int:
    """The length of a text as Slack counts it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _refuse_length(field: Field, text: str) -> None:
    least, most = field.get("minLength") or 0, most_text(field)
    if len(text) < least:
        raise InvalidAnswer(f"Write at least {_characters(least)}; this has {len(text):,}.")
    if len(text) > most or units(text) > MOST_TEXT:
        raise InvalidAnswer(f"Write at most {_characters(most)}; this has {len(text):,}.")


def _characters(count: int) -> str:
    return "1 character" if count == 1 else f"{count:,} characters"


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """A field's pattern, which need not fit the whole text: `^` and `$` say so. Raises `re.error`."""
    return re.compile(pattern)


def _integer(field: Field, raw: Json) -> int:
    value = int(raw) if isinstance(raw, str) and _INTEGER.fullmatch(raw.strip()) else raw
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidAnswer("Write a whole number in digits only, such as 1200.")
    _refuse_bounds(field, value)
    if not -(2**63) <= value < 2**63:
        raise InvalidAnswer("This number is too large.")
    return value


def _number(field: Field, raw: Json) -> int | float:
    value = _number_in(raw.strip()) if isinstance(raw, str) else raw
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidAnswer(
            "Write a number with a point for decimals and nothing between the thousands, such as 1200.5."
        )
    if (isinstance(value, float) and not math.isfinite(value)) or not -(2**1023) <= value <= 2**1023:
        raise InvalidAnswer("This number is too large.")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = float(value)
    _refuse_bounds(field, value)
    return value


def _number_in(text: str) -> int | float | None:
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if len(text) <= 400 and _NUMBER.fullmatch(text) else None


def _refuse_bounds(field: Field, value: int | float) -> None:
    least, most = field.get("minimum"), field.get("maximum")
    if least is not None and value < least:
        raise InvalidAnswer(f"The least is {least}.")
    if most is not None and value > most:
        raise InvalidAnswer(f"The most is {most}.")


def _boolean(field: Field, raw: Json) -> bool:
    word = raw.strip().lower() if isinstance(raw, str) else raw
    if word is True or (isinstance(word, str) and word in _TRUE):
        return True
    if word is False or (isinstance(word, str) and word in _FALSE):
        return False
    raise InvalidAnswer("Answer with yes or no.")


_READERS: Mapping[str, Callable[[Field, Json], Json]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}


# --- choices ---------------------------------------------------------------------------------------------


def _option(field: Field, raw: Json, by_number: bool) -> Mapping[str, Json]:
    offered = field["options"]
    # What a person typed means a label first; what a program gave is a value.
    found = None if by_number else options.among(offered, raw)
    if found is None and isinstance(raw, str):
        found = options.match_option(offered, raw, by_number=by_number)
    if found is None:
        close = options.meant(offered, raw) if isinstance(raw, str) else ""
        raise InvalidAnswer(f"Choose one of: {options.listed(offered)}.{close}")
    return found


def _choices(field: Field, raw: Json, by_number: bool) -> list[Json]:
    offered = field["options"]
    given = _split(offered, raw, by_number) if isinstance(raw, str) else raw
    if not isinstance(given, list):
        raise InvalidAnswer(f"Choose from: {options.listed(offered)}; several with commas between them.")
    if len(given) > len(offered):
        raise InvalidAnswer(f"Choose at most {len(offered)}, each of them once.")
    chosen = {id(_option(field, item, by_number)) for item in given if not is_empty(item)}
    # In the order of the form, whatever order they were chosen in.
    values = [option["value"] for option in offered if id(option) in chosen]
    least, most = field.get("minItems") or 0, min(field.get("maxItems") or MOST_CHOSEN, MOST_CHOSEN)
    if len(values) < least:
        raise InvalidAnswer(f"Choose at least {least}; this is {len(values)}.")
    if len(values) > most:
        raise InvalidAnswer(f"Choose at most {most}; this is {len(values)}.")
    return values


def _split(offered: Sequence[Mapping[str, Json]], text: str, by_number: bool) -> list[Json]:
    """Comma separated options. A label may have commas itself: of what could be meant the longest counts."""
    parts = re.split(r"[,\n]", text)
    longest = 1 + max((str(option["label"]).count(",") for option in offered), default=0)
    found: list[Json] = []
    start = 0
    while start < len(parts) and len(found) <= len(offered):
        end = min(start + longest, len(parts))
        option = None
        while option is None and end > start:
            option = options.match_option(offered, ",".join(parts[start:end]), by_number=by_number)
            end -= option is None
        if option is not None:
            found.append(option["value"])
        elif parts[start].strip():
            found.append(parts[start].strip())
        start = max(end, start + 1)
    return found
