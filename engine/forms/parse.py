"""Conversion of typed, clicked or JSON input to stored values: one value for one field, a whole form, options by label,
value or number; and the display of fields and values.

Every reader raises `InvalidAnswer` with a sentence for the person who filled in the field. A whole form gives its
values, and a sentence for each wrong field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from engine.forms.formats import read_format
from engine.language.codec import Json, clean_text, nfc, place_of
from engine.language.diagnostics import nearest, suggest
from engine.language.errors import InvalidAnswer

Field: TypeAlias = Mapping[str, Json]
"""A settled field; see `engine.forms`."""

MOST_TEXT = 3_000
"""Most UTF-16 units of a text in a form, the limit of Slack's input."""
MOST_PATTERN_TEXT = 200
"""The same for a text with a `pattern`, unless the field has a `maxLength`: matching costs time."""

MOST_CHOSEN = 100
"""Most options chosen at once, the limit of Slack's list."""

_TRUE = ("true", "yes", "y", "on", "1")
_FALSE = ("false", "no", "n", "off", "0")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,400}", re.ASCII)


def is_empty(raw: Json) -> bool:
    """True for null, blank text, and an empty list."""
    return raw is None or raw == [] or (isinstance(raw, str) and not raw.strip())


def read_value(field: Field, raw: Json, *, by_number: bool = False) -> Json:
    """Return the stored form of a non-empty value. Idempotent. Raises `InvalidAnswer`."""
    if isinstance(raw, str):
        raw = clean_text(raw)[0]
    if field["type"] == "choice":
        return _option(field, raw, by_number)["value"]
    if field["type"] == "choices":
        offered = field["options"]
        given = _split(offered, raw, by_number) if isinstance(raw, str) else raw
        if not isinstance(given, list):
            raise InvalidAnswer(f"Choose from: {listed(offered)}; separate several with commas.")
        if len(given) > len(offered):
            raise InvalidAnswer(f"Choose at most {len(offered)}, each only once.")
        chosen = {id(_option(field, item, by_number)) for item in given if not is_empty(item)}
        # In the order of the form, whatever order they were chosen in.
        values = [option["value"] for option in offered if id(option) in chosen]
        least, most = field.get("minItems") or 0, min(field.get("maxItems") or MOST_CHOSEN, MOST_CHOSEN)
        if len(values) < least:
            raise InvalidAnswer(f"Choose at least {least}; you chose {len(values)}.")
        if len(values) > most:
            raise InvalidAnswer(f"Choose at most {most}; you chose {len(values)}.")
        return values
    return _READERS[field["type"]](field, raw)


def _string(field: Field, raw: Json) -> str:
    if not isinstance(raw, str):
        raise InvalidAnswer("Write some text.")
    text = raw if field.get("multiline") else raw.strip()
    if field.get("format"):
        text = read_format(field["format"], text)
    least, most = field.get("minLength") or 0, most_text(field)
    if len(text) < least:
        raise InvalidAnswer(f"Write at least {_characters(least)}; this has {len(text):,}.")
    if len(text) > most or units(text) > MOST_TEXT:
        raise InvalidAnswer(f"Write at most {_characters(most)}; this has {len(text):,}.")
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
    value = raw
    if isinstance(raw, str):
        text = raw.strip()
        is_decimal = len(text) <= 400 and _NUMBER.fullmatch(text)
        value = int(text) if _INTEGER.fullmatch(text) else float(text) if is_decimal else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidAnswer(
            "Write a number with a decimal point and no thousands separators, such as 1200.5."
        )
    exact = math.isfinite(value) if isinstance(value, float) else -(2**63) <= value < 2**63
    if not exact:
        raise InvalidAnswer("This number is too large.")
    _refuse_bounds(field, value)
    return value


def _refuse_bounds(field: Field, value: int | float) -> None:
    least, most = field.get("minimum"), field.get("maximum")
    if least is not None and value < least:
        raise InvalidAnswer(f"The minimum is {least}.")
    if most is not None and value > most:
        raise InvalidAnswer(f"The maximum is {most}.")


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
    # Typed text is a label first; input of a program is a value.
    found = None if by_number else _among(offered, raw)
    if found is None and isinstance(raw, str):
        found = match_option(offered, raw, by_number=by_number)
    if found is None:
        close = meant(offered, raw) if isinstance(raw, str) else ""
        raise InvalidAnswer(f"Choose one of: {listed(offered)}.{close}")
    return found


def _split(offered: Sequence[Mapping[str, Json]], text: str, by_number: bool) -> list[Json]:
    """Split comma separated options. Labels may contain commas: the longest possible label wins."""
    parts = re.split(r"[,\n]", text)
    longest = 1 + max((str(option["label"]).count(",") for option in offered), default=0)
    found: list[Json] = []
    start = 0
    while start < len(parts) and len(found) <= len(offered):
        end = min(start + longest, len(parts))
        option = None
        while option is None and end > start:
            option = match_option(offered, ",".join(parts[start:end]), by_number=by_number)
            end -= option is None
        if option is not None:
            found.append(option["value"])
        elif parts[start].strip():
            found.append(parts[start].strip())
        start = max(end, start + 1)
    return found


# --- whole forms -------------------------------------------------------------------------------------------


_NEEDED = "Please fill this in."


def check_form(fields: Sequence[Field], values: Mapping[str, Json]) -> tuple[dict[str, Json], dict[str, str]]:
    """Return the stored values of a filled-in form, and a sentence for each wrong field (then the values are partial).

    A field missing from `values` gets its default; one that is present and empty is empty: null, or an empty list if
    several can be chosen. `values` may hold anything; nothing is raised.
    """
    found: dict[str, Json] = {}
    wrong: dict[str, str] = {}
    names = [field["name"] for field in fields]
    for name in values:
        if name not in names:
            hint = suggest(str(name), names)
            wrong[str(name)] = f"There is no such field{f' ({hint})' if hint else ''}."
    for field in fields:
        name = field["name"]
        raw = values[name] if name in values else field.get("default")
        try:
            value = _nothing(field) if is_empty(raw) else read_value(field, raw)
            if field.get("required") and is_empty(value):
                raise InvalidAnswer(_NEEDED)
            found[name] = value
        except InvalidAnswer as error:
            wrong[name] = str(error)
    return found, wrong


def parse_typed(field: Field, text: str) -> Json:
    """Parse a typed reply: options by label, value or number of the list, several separated by commas.

    Raises `InvalidAnswer`, naming the valid input.
    """
    if is_empty(text):
        raise InvalidAnswer("The answer is empty.")
    return read_value(field, text, by_number=True)


def defaults(fields: Sequence[Field]) -> dict[str, Json]:
    """Return the default values of a form; null for fields without a default."""
    return {field["name"]: field.get("default", _nothing(field)) for field in fields}


def _nothing(field: Field) -> Json:
    return [] if field["type"] == "choices" else None


# --- inputs of a flow ------------------------------------------------------------------------------------


def input_field(
    name: str, kind: str, about: str | None, choices: Sequence[Json] | None
) -> dict[str, Json] | None:
    """The field for an input of a flow that was not given; None for one that only JSON can say."""
    field: dict[str, Json] = {"name": name, "type": kind, "title": name, "required": True}
    if about:
        field["description"] = about
    if choices is not None:
        field["type"] = "choices" if kind == "array" else "choice"
        field["options"] = [{"value": choice, "label": str(choice)} for choice in choices]
        return field
    return field if kind in ("string", "number", "integer", "boolean") else None


# --- options -----------------------------------------------------------------------------------------------


_SHOWN = 20


def is_numbered(options: Sequence[Mapping[str, Json]]) -> bool:
    """True if options may be chosen by number: not if an option itself is a number."""
    return not any(
        str(word).strip().isdigit() for option in options for word in (option["label"], option["value"])
    )


def match_option(
    options: Sequence[Mapping[str, Json]], text: str, *, by_number: bool = False
) -> Mapping[str, Json] | None:
    """Return the one option that a text means, or None if there is none or several.

    An exact label matches, unless it is another option's value; else label or value without regard to case; with
    `by_number` also a place in the list, counted from one, unless an option is itself a number.
    """
    typed = str(nfc(text.strip()))
    if not typed:
        return None
    found = [option for option in options if typed in _words(option)]
    if len(found) == 1 and _words(found[0])[0] == typed:
        return found[0]
    found = [option for option in options if typed.casefold() in map(str.casefold, _words(option))]
    if found:
        return found[0] if len(found) == 1 else None
    if by_number and is_numbered(options) and typed.isascii() and typed.isdigit() and len(typed) < 6:
        place = int(typed)
        return options[place - 1] if 1 <= place <= len(options) else None
    return None


def _among(options: Iterable[Mapping[str, Json]], value: Json) -> Mapping[str, Json] | None:
    """The option with this value."""
    listed = list(options)
    found = place_of(value, [option["value"] for option in listed])
    return None if found is None else listed[found]


def listed(options: Sequence[Mapping[str, Json]]) -> str:
    """The labels for a sentence; of a long list the first ones."""
    labels = ", ".join(str(option["label"]) for option in options[:_SHOWN])
    more = len(options) - _SHOWN
    return f"{labels} and {more} more" if more > 0 else labels


def meant(options: Sequence[Mapping[str, Json]], text: str) -> str:
    """Return ` Did you mean X?` for a text that is close to an option, else an empty text."""
    close = nearest(text, [str(option["label"]) for option in options[:200]])
    return "" if close is None else f" Did you mean {close}?"


def _words(option: Mapping[str, Json]) -> tuple[str, str]:
    value = option["value"]
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return str(nfc(option["label"])).strip(), str(nfc(text)).strip()


# --- display -----------------------------------------------------------------------------------------------


_MOST_WORDS = 500

_ABOUT = {
    "email": "an e-mail address",
    "uri": "an address such as https://example.com",
    "date": "a date, such as 2026-11-24",
    "date-time": "a time with its offset, such as 2026-11-24T15:00:00Z",
    "user": "a person",
    "channel": "a channel",
}


def value_text(field: Field, value: Json) -> str:
    """Format a stored value for people: options by their labels, a dash if it is empty."""
    if is_empty(value):
        return "–"
    if field["type"] == "choices" and isinstance(value, list):
        return ", ".join(_label(field, item) for item in value)
    if field["type"] == "choice":
        return _label(field, value)
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return str(value)


def form_text(fields: Sequence[Field], values: Mapping[str, Json]) -> str:
    """A filled-in form on one line: of a single field its value, else `Title: value · Title: value`."""
    given = [(field, value_text(field, values.get(field["name"]))) for field in fields]
    if len(given) == 1:
        return given[0][1]
    line = " · ".join(f"{field['title']}: {' '.join(text.split())}" for field, text in given)
    return line if len(line) <= _MOST_WORDS else line[: _MOST_WORDS - 1] + "…"


def limits_text(field: Field) -> str:
    """Describe the accepted values of a field: `a number from 1 to 90`. Empty if it accepts anything."""
    kind = field["type"]
    if kind == "boolean":
        return "yes or no"
    if kind in ("integer", "number"):
        what = "a whole number" if kind == "integer" else "a number"
        return what + _range(
            field.get("minimum"), field.get("maximum"), " from {} to {}", " of at least {}", " up to {}"
        )
    if kind == "choices":
        several = _range(
            field.get("minItems"), field.get("maxItems"), " ({} to {})", " (at least {})", " (at most {})"
        )
        return f"any of them{several}"
    if kind == "choice":
        return ""
    about = _ABOUT.get(field.get("format") or "", "")
    size = _range(
        field.get("minLength"), field.get("maxLength"), "{} to {} characters", "at least {} characters",
        "at most {} characters",
    )  # fmt: skip
    pattern = f"like {field['pattern']}" if field.get("pattern") else ""
    return ", ".join(part for part in (about, size, pattern) if part)


def _range(least: Json, most: Json, both: str, low: str, high: str) -> str:
    if least is not None and most is not None:
        return both.format(least, most)
    if most is not None:
        return high.format(most)
    return "" if least is None else low.format(least)


def _label(field: Field, value: Json) -> str:
    found = _among(field["options"], value)
    return str(value if found is None else found["label"])
