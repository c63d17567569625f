"""Options by what people type: a label, a value, or a number of the list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.language.codec import Json
from engine.language.diagnostics import nearest

_SHOWN = 20


def is_numbered(options: Sequence[Mapping[str, Json]]) -> bool:
    """Whether options may be chosen by number: not where a number could also be what an option says."""
    return not any(
        str(word).strip().isdigit() for option in options for word in (option["label"], option["value"])
    )


def match_option(
    options: Sequence[Mapping[str, Json]], text: str, *, by_number: bool = False
) -> Mapping[str, Json] | None:
    """The one option that a text means, or None where it is none or could be several.

    A label as it is written, where it is no other option's value; else label or value without regard to case; with
    `by_number` also a place in the list, counted from one, where no option says a number itself.
    """
    typed = text.strip()
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


def among(options: Iterable[Mapping[str, Json]], value: Json) -> Mapping[str, Json] | None:
    """The option with exactly this value. `True` is not 1 in JSON, although it is in Python."""
    for option in options:
        if option["value"] == value and isinstance(option["value"], bool) == isinstance(value, bool):
            return option
    return None


def listed(options: Sequence[Mapping[str, Json]]) -> str:
    """The labels for a sentence; of a long list the first ones."""
    labels = ", ".join(str(option["label"]) for option in options[:_SHOWN])
    more = len(options) - _SHOWN
    return f"{labels} and {more} more" if more > 0 else labels


def meant(options: Sequence[Mapping[str, Json]], text: str) -> str:
    """`Did you mean X?` for a text that is no option, with a space before it; nothing where none is close."""
    close = nearest(text, [str(option["label"]) for option in options[:200]])
    return "" if close is None else f" Did you mean {close}?"


def _words(option: Mapping[str, Json]) -> tuple[str, str]:
    value = option["value"]
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return str(option["label"]).strip(), text.strip()
