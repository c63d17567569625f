"""Faults in a document, before their lines are known.

A `Fault` carries the path inside the document (`("nodes", 2, "with", "run")`). The flow loader turns it into a
`Problem` with file, line and column; a node that is about to run turns it into an error with the field's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from engine.language.elsewhere import instead, ours

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

MAX_FAULTS = 100
"""Most problems listed for one file: finding the nearest name is costly, and longer lists go unread."""

Path: TypeAlias = tuple[str | int, ...]
"""The way from the top of a document to a value: keys and list positions."""

QUOTE_IT = "quote it"
"""The hint for a number, or `true`, where text is wanted."""


class Fault(Struct, frozen=True):
    """One fault. With `on_key` the key is at fault and not its value; `offset` and `snippet` point into a text value
    (the offset in characters where the snippet begins). A `doubt` is allowed but probably unintended."""

    path: Path
    message: str
    hint: str | None = None
    on_key: bool = False
    offset: int | None = None
    snippet: str | None = None
    doubt: bool = False

    def under(self, prefix: Path) -> Fault:
        """The same fault, seen from further out."""
        return replace(self, path=prefix + self.path)


def faults_under(prefix: Path, faults: Iterable[Fault]) -> Iterator[Fault]:
    """The same faults, seen from further out."""
    return (fault.under(prefix) for fault in faults)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, or None if there is none."""
    import difflib  # only for what is wrong

    names = sorted(set(known))
    by_lower = {candidate.lower(): candidate for candidate in names}
    found = difflib.get_close_matches(name[:80].lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def suggest(name: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """Return a hint with the field that other formats call so, or the nearest known name; failing that with all names,
    if the list is short."""
    names = sorted(set(known))
    close = ours(name, names) or nearest(name, names)
    if close is not None:
        return f"did you mean `{close}`?"
    if otherwise is not None:
        return otherwise
    return f"expected one of: {', '.join(names)}" if 0 < len(names) <= 20 else None


NULL, BOOLEAN, NUMBER, TEXT, LIST, MAPPING, MISSING = (1 << bit for bit in range(7))
"""Kinds of JSON values, and of missing ones, as bits."""

_KINDS: Mapping[type, int] = {bool: BOOLEAN, int: NUMBER, float: NUMBER, str: TEXT, list: LIST, tuple: LIST}


def kind_bit(value: Any) -> int:
    """The kind of a JSON value, of the bits above."""
    return NULL if value is None else _KINDS.get(type(value), MAPPING)


def kind_of(value: Any) -> str:
    """The JSON type of a value, in the words of the flow format."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {_short(value)!r}"
    return "a list" if isinstance(value, list | tuple) else "a mapping"


def shape_of(value: Any) -> str:
    """Describe the shape of a value without its content: `a list of 3`, `a mapping with host, port`."""
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, Mapping):
        names = [str(name)[:40] for name in list(value)[:8]]
        more = len(value) - len(names)
        return (
            f"a mapping with {', '.join(names)}{f' and {more} more' if more > 0 else ''}"
            if names
            else "an empty mapping"
        )
    return kind_of(value)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def faults_of(error: ValidationError, model: type[BaseModel]) -> list[tuple[Fault, Any]]:
    """Translate pydantic's errors, each with the value that it is about; not many more than `MAX_FAULTS`."""
    details = error.errors(include_url=False)[: MAX_FAULTS + 1]
    found = {_translate(detail, model): detail["input"] for detail in details}
    return list(found.items())


def _translate(detail: Mapping[str, Any], model: type[BaseModel]) -> Fault:
    path: Path = tuple(detail["loc"])
    kind, context, given = detail["type"], detail.get("ctx", {}), detail["input"]
    name = str(path[-1]) if path else ""
    if kind == "missing":
        return Fault(path[:-1], f"`{name}` is missing")
    if kind == "extra_forbidden":
        owner = model_at(model, path[:-1])
        hint = suggest(name, owner) if ours(name, owner) else instead(name) or suggest(name, owner)
        return Fault(path, f"unknown field `{name}`", hint, on_key=True)
    if kind in ("literal_error", "enum"):
        choices = context["expected"].replace("'", "")
        hint = suggest(given, choices.replace(" or ", ", ").split(", "), "") if isinstance(given, str) else ""
        return Fault(path, f"expected {choices}, not {kind_of(given)}", hint or None)
    if kind in _EXPECTED:
        fitting = None
        if kind == "string_type":
            fitting = QUOTE_IT if isinstance(given, bool | int | float) else _OTHERWISE.get(name)
        elif kind == "list_type" and isinstance(given, str):
            fitting = list_hint(name, given)
        return Fault(path, f"expected {_EXPECTED[kind]}, not {kind_of(given)}", fitting)
    message = _size_message(kind, context, given) or detail["msg"].removeprefix("Value error, ")
    wants_text = message.startswith("expected text") and isinstance(given, bool | int | float)
    return Fault(path, message, QUOTE_IT if wants_text else None)


SHELL_SIGNS = re.compile(r"[|;<>&`]|\$[({\w]")
_WORD = re.compile(r"(?:\{\{.*?\}\}|\S)+", re.DOTALL)
_ENTRY = re.compile(r"(?:\{\{.*?\}\}|[^\s,])+", re.DOTALL)
_PLAIN = re.compile(r"[\w./=][\w./=-]*|-+[\w./=-]+")
_OF_NODES = frozenset({"nodes", "body", "on_failure", "finally", "default"})
_OTHERWISE = {"body": "write a mapping or a list under `json`", "script": "write a list of words under `run`"}


def list_hint(name: str, text: str) -> str:
    """Return a hint on how to write a text as a list."""
    if name in _OF_NODES:
        return "write a list of nodes, each with `id` and `type`"
    if name == "run" and ("\n" in text.strip() or SHELL_SIGNS.search(re.sub(r"\{\{.*?\}\}", "", text))):
        shown = (
            f"`script: {_short(text)}`"
            if "{{" not in text
            else "a `script` with `$NAME`, and the value under `env`"
        )
        return f"for pipes and such write {shown}; `run` takes a list and uses no shell"
    if name != "run" and re.fullmatch(r"\s*\{\{[^{}]*\}\}\s*", text):
        return (
            f"for a list of one write [\"{text.strip()}\"]; of its lines or parts: `| lines`, `| split(',')`"
        )
    # The probable entries: the words of the text, or its parts between commas.
    if name == "run" and "{{" not in text:
        import shlex  # only for what is wrong

        try:
            found = shlex.split(text)
        except ValueError:
            found = []
    else:
        found = (_WORD if name == "run" else _ENTRY).findall(text)
    return f"write [{', '.join(map(_quoted, found))}]" if 0 < len(found) <= 12 else 'write a list: ["..."]'


def _quoted(entry: str) -> str:
    if _PLAIN.fullmatch(entry):
        return entry
    return f"'{entry}'" if '"' in entry or "\\" in entry else f'"{entry}"'


def _size_message(kind: str, context: Mapping[str, Any], given: Any) -> str | None:
    """Return the message for a value that is too small, too large or of the wrong shape."""
    match kind:
        case "too_short":
            least = context["min_length"]
            return f"expected at least {least} {'entry' if least == 1 else 'entries'}"
        case "too_long":
            return f"expected at most {context['max_length']} entries, not {len(given)}"
        case "string_too_short":
            return "expected text that is not empty"
        case "string_too_long":
            return f"the text is longer than {context['max_length']} characters"
        case "greater_than":
            return f"expected more than {context['gt']}, not {given}"
        case "greater_than_equal":
            return f"expected at least {context['ge']}, not {given}"
        case "less_than_equal":
            return f"expected at most {context['le']}, not {given}"
    return None


def model_at(model: type[BaseModel], path: Path) -> list[str]:
    """Return the field names, as in a file, of the model for this place; empty if it has no model."""
    current: Any = model
    for part in path:
        if isinstance(part, int) or current is None:
            continue
        fields = current.model_fields.items()
        found = (_model_in(field.annotation) for key, field in fields if part in (field.alias, key))
        current = next(found, None)
    return field_names(current) if current is not None else []


def field_names(model: type[BaseModel]) -> list[str]:
    """The fields of a model as they are written in a file."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation such as `list[Choice] | None` holds."""
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
