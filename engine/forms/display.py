"""Fields and values as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.forms import options
from engine.forms.parse import Field, is_empty
from engine.language.codec import Json

_MOST_WORDS = 500

_ABOUT = {
    "email": "an e-mail address",
    "uri": "an address such as https://example.com",
    "date": "a day, such as 2026-11-24",
    "date-time": "a time with its offset, such as 2026-11-24T15:00:00Z",
    "user": "a person",
    "channel": "a channel",
}


def value_text(field: Field, value: Json) -> str:
    """A stored value as people read it: options by their labels, a dash where there is none."""
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
    """What fits into a field, in a few words: `a number from 1 to 90`. Empty where anything does."""
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
    found = options.among(field["options"], value)
    return str(value if found is None else found["label"])
