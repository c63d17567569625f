"""A form as written in a flow: JSON Schema's flat subset, checked when the flow is loaded, settled when it is asked.

The same checks run twice. While a flow is loaded, `default`, options and limits may be expressions, whose values are
unknown; once they are evaluated, the values may be wrong: no option left, a default that is not one of them. Then the
node fails with the loader's message.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from engine.forms.formats import FORMATS, lengths, pattern_problem
from engine.forms.parse import MOST_PATTERN_TEXT, MOST_TEXT, is_empty, read_value
from engine.language.codec import Json, clean_text, nfc
from engine.language.diagnostics import Fault, Path, kind_of, suggest
from engine.language.errors import InvalidAnswer
from engine.language.template import has_expression, is_blank

MOST_FIELDS = 300
MOST_OPTIONS = 1_000
_MOST_LABEL = 150
_MOST_ABOUT = 1_500

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_TYPES = ("string", "number", "integer", "boolean", "array")
_COMMON = ("type", "title", "description", "default")
_CHOICE = ("enum", "enumNames", "oneOf")
_OF_TYPE: Mapping[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "format", "multiline", *_CHOICE),
    "number": ("minimum", "maximum", *_CHOICE),
    "integer": ("minimum", "maximum", *_CHOICE),
    "boolean": (),
    "array": ("items", "minItems", "maxItems"),
}
_KNOWN = tuple(dict.fromkeys((*_COMMON, *(word for words in _OF_TYPE.values() for word in words))))
_LIMITS = (("minLength", "maxLength"), ("minimum", "maximum"), ("minItems", "maxItems"))
_SECRET_NAMES = re.compile(
    r"(?:.*_)?(?:password|passwd|passphrase|secret|private_key|api_key|access_token)", re.ASCII
)
_SECRET_HINT = "what is filled in stays in the journal and the thread; use `secrets.NAME` where it is needed"


def form_faults(form: Json) -> Iterator[Fault]:
    """Yield the faults of a form in a file; values that an expression will give are not checked."""
    yield from _form(form, lenient=True)


def normalize_form(form: Mapping[str, Json]) -> dict[str, Json]:
    """The form of a prompt from an evaluated one: `{"fields": [...]}`. Raises `ValueError` with all that is wrong."""
    faults = list(_form(form, lenient=False))
    if faults:
        raise ValueError("; ".join(_sentence(fault) for fault in faults[:5]))
    required = form.get("required") or []
    return {
        "fields": [_normalized(name, body, name in required) for name, body in form["properties"].items()]
    }


def _sentence(fault: Fault) -> str:
    place = [str(part) for part in fault.path if part not in ("properties",)]
    hint = f" ({fault.hint})" if fault.hint else ""
    return f"form: {'.'.join(place)}: {fault.message}{hint}" if place else f"form: {fault.message}{hint}"


def _normalized(name: str, body: Mapping[str, Json], required: bool) -> dict[str, Json]:
    # The label: the title, else the name as words.
    given = clean_text(str(body.get("title") or ""))[0].strip()
    field: dict[str, Json] = {
        "name": name,
        "type": body["type"],
        "title": name.replace("_", " ").capitalize() if is_blank(given) else given,
        "required": required,
    }
    options = _options(body)
    if options is not None:
        field["type"] = "choices" if body["type"] == "array" else "choice"
        field["options"] = options
    for word in (
        "format",
        "description",
        "multiline",
        *(limit for pair in _LIMITS for limit in pair),
        "pattern",
    ):
        if body.get(word) is not None and not (options is not None and word in ("minLength", "maxLength")):
            field[word] = body[word]
    if not is_empty(body.get("default")):
        field["default"] = read_value(field, body["default"])
    return field


def _options(body: Mapping[str, Json]) -> list[dict[str, Json]] | None:
    """The options of a sound field, each with a label; None for a field without."""
    holder = body.get("items") if body["type"] == "array" else body
    holder = holder if isinstance(holder, Mapping) else {}
    if holder.get("oneOf") is not None:
        return [
            {"value": one["const"], "label": str(one.get("title", one["const"]))} for one in holder["oneOf"]
        ]
    if holder.get("enum") is None:
        return None
    names = holder.get("enumNames") or holder["enum"]
    return [{"value": value, "label": str(label)} for value, label in zip(holder["enum"], names, strict=True)]


# --- the form --------------------------------------------------------------------------------------------


def _form(form: Json, *, lenient: bool) -> Iterator[Fault]:
    if not isinstance(form, dict):
        yield Fault((), f"expected a mapping with `properties`, not {kind_of(form)}")
        return
    for word in form:
        if word not in ("type", "properties", "required"):
            yield Fault(
                (word,), f"unknown field `{word}`", suggest(word, ("type", "properties", "required")), True
            )
    if form.get("type", "object") != "object":
        yield Fault(("type",), "a form is of type object", "leave `type` out")
    properties = form.get("properties")
    if not isinstance(properties, dict) or not properties:
        hint = "write `properties: {region: {type: string}}`"
        yield Fault(
            ("properties",) if "properties" in form else (), "a form needs `properties`, its fields", hint
        )
        return
    if len(properties) > MOST_FIELDS:
        yield Fault(("properties",), f"a form has at most {MOST_FIELDS} fields, not {len(properties)}")
        return
    yield from _required(form.get("required"), properties)
    for name, body in properties.items():
        for fault in _Field(name, body, lenient).faults():
            yield fault.under(("properties", name))


def _required(required: Json, properties: Mapping[str, Json]) -> Iterator[Fault]:
    if required is None:
        return
    if not isinstance(required, list):
        yield Fault(("required",), f"expected a list of field names, not {kind_of(required)}")
        return
    for index, name in enumerate(required):
        if not isinstance(name, str) or name not in properties:
            hint = suggest(name, properties) if isinstance(name, str) else None
            yield Fault(("required", index), f"there is no field {str(name)[:80]!r}", hint)


class _Field:
    """One written field and its faults."""

    def __init__(self, name: str, body: Json, lenient: bool) -> None:
        self.name = name
        self.body: dict[str, Any] = body if isinstance(body, dict) else {}
        self.given = body
        self.lenient = lenient
        kind = self.body.get("type")
        self.kind = kind if isinstance(kind, str) else ""

    def open(self, value: Json) -> bool:
        """True if an expression will decide this value."""
        return self.lenient and has_expression(value)

    def faults(self) -> Iterator[Fault]:
        """Yield all faults, with paths inside the field."""
        if not _NAME.fullmatch(self.name):
            yield Fault((), f"{self.name[:80]!r} is no name for a field", _NAME_HINT, on_key=True)
        elif _SECRET_NAMES.fullmatch(self.name):
            yield Fault((), "a form does not ask for secrets", _SECRET_HINT, on_key=True)
        if not isinstance(self.given, dict):
            yield Fault((), f"expected a mapping such as {{type: string}}, not {kind_of(self.given)}")
            return
        if self.kind not in _TYPES:
            yield self._type_fault()
            return
        shape = [*self._words(), *self._limits(), *self._texts(), *self._choice()]
        yield from shape
        if not shape:
            default = self.body.get("default")
            if is_empty(default) or self.open(default) or self._undecided():
                return
            field = _normalized(self.name, {**self.body, "default": None}, required=False)
            try:
                read_value(field, default)
            except InvalidAnswer as error:
                yield Fault(("default",), f"the default does not fit: {error}")

    def _type_fault(self) -> Fault:
        if self.body.get("type") is None:
            return Fault((), "`type` is missing", f"one of {', '.join(_TYPES)}")
        if self.kind == "object":
            return Fault(
                ("type",), "forms are flat: a field is no object", "make a field of each of its parts"
            )
        given = kind_of(self.body["type"])
        return Fault(
            ("type",), f"expected one of {', '.join(_TYPES)}, not {given}", suggest(self.kind, _TYPES)
        )

    def _words(self) -> Iterator[Fault]:
        allowed = (*_COMMON, *_OF_TYPE[self.kind])
        for word in self.body:
            if word in allowed:
                continue
            if word == "required":
                yield Fault((word,), "`required` stands beside `properties`, a list of names", on_key=True)
            elif self.kind == "array" and word in _CHOICE:
                yield Fault((word,), f"`{word}` of an array stands under `items`", on_key=True)
            elif word in _KNOWN:
                fits = ", ".join(kind for kind in _TYPES if word in _OF_TYPE[kind])
                yield Fault(
                    (word,), f"`{word}` is for {fits}, and this field is of type {self.kind}", on_key=True
                )
            else:
                yield Fault((word,), f"unknown field `{word[:80]}`", suggest(word, allowed), on_key=True)

    def _texts(self) -> Iterator[Fault]:
        for word, most in (("title", _MOST_LABEL), ("description", _MOST_ABOUT)):
            text = self.body.get(word)
            if text is not None and not isinstance(text, str):
                yield Fault((word,), f"expected text, not {kind_of(text)}", "quote it")
            elif text is not None and len(text) > most and not self.open(text):
                yield Fault((word,), f"the text is longer than {most:,} characters")
        wanted, pattern = self.body.get("format"), self.body.get("pattern")
        if isinstance(wanted, str) and wanted.lower() in ("password", "secret"):
            yield Fault(("format",), "a form does not ask for secrets", _SECRET_HINT)
        elif wanted is not None and wanted not in FORMATS:
            hint = suggest(wanted, FORMATS) if isinstance(wanted, str) else None
            yield Fault(("format",), f"expected one of {', '.join(FORMATS)}, not {kind_of(wanted)}", hint)
        problem = None if pattern is None or self.open(pattern) else pattern_problem(pattern)
        if problem is not None:
            yield Fault(("pattern",), problem)
        multiline = self.body.get("multiline")
        if multiline is not None and not isinstance(multiline, bool):
            yield Fault(("multiline",), f"expected true or false, not {kind_of(multiline)}")
        elif multiline and self.body.get("format") is not None:
            yield Fault(("multiline",), "a text with a `format` has one line", on_key=True)

    # --- limits ------------------------------------------------------------------------------------------

    def _limits(self) -> Iterator[Fault]:
        for least, most in _LIMITS:
            found = [*self._limit(least), *self._limit(most)]
            yield from found
            low, high = self.body.get(least), self.body.get(most)
            if found or low is None or high is None or self.open(low) or self.open(high):
                continue
            if low > high:
                yield Fault((least,), f"`{least}` is more than `{most}`")
        longest = self.body.get("maxLength")
        if isinstance(longest, int) and not 1 <= longest <= MOST_TEXT:
            yield Fault(("maxLength",), f"expected 1 to {MOST_TEXT}, not {longest}")
        if self.body.get("maxItems") == 0:
            yield Fault(("maxItems",), "nothing could be chosen: expected at least 1, not 0")
        if self.kind == "string":
            yield from self._unmet()

    def _unmet(self) -> Iterator[Fault]:
        """Limits of a text that leave no text, with its format and its pattern."""
        about = {word: self.body.get(word) for word in ("minLength", "maxLength", "format", "pattern")}
        given = {word: value for word, value in about.items() if value is not None}
        if any(map(self.open, given.values())) or pattern_problem(given.get("pattern", "x")):
            return
        shortest, longest = given.get("minLength", 0), given.get("maxLength", MOST_TEXT)
        if not isinstance(shortest, int) or not isinstance(longest, int):
            return
        least, most = lengths(given.get("format"), given.get("pattern"))
        bound = MOST_PATTERN_TEXT if "pattern" in given and "maxLength" not in given else longest
        is_told = "maxLength" in given and shortest > longest
        if max(shortest, least) > min(bound, most) and not is_told:
            where = next(word for word in ("maxLength", "minLength", "pattern") if word in given)
            together = " and ".join(f"`{word}`" for word in given)
            yield Fault((where,), f"no text fits {together}", "allow what somebody could answer")

    def _limit(self, word: str) -> Iterator[Fault]:
        value = self.body.get(word)
        if value is None or self.open(value):
            return
        whole = word not in ("minimum", "maximum") or self.kind == "integer"
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            wanted = "a whole number" if whole else "a number"
            yield Fault((word,), f"expected {wanted}, not {kind_of(value)}")
        elif not math.isfinite(value) or (value < 0 and word not in ("minimum", "maximum")):
            yield Fault((word,), f"expected a number that is not negative, not {value}")

    # --- options -----------------------------------------------------------------------------------------

    def _choice(self) -> Iterator[Fault]:
        if self.kind != "array":
            yield from self._offered(self.body, ())
            if any(self.body.get(word) is not None for word in ("enum", "oneOf")):
                for word in (
                    "format",
                    "pattern",
                    "multiline",
                    "minimum",
                    "maximum",
                    "minLength",
                    "maxLength",
                ):
                    if self.body.get(word) is not None:
                        yield Fault((word,), f"a choice takes no `{word}`", on_key=True)
            return
        items = self.body.get("items")
        if not isinstance(items, dict):
            hint = "write `items: {type: string, enum: [a, b]}`"
            yield Fault(
                ("items",) if "items" in self.body else (), "an array needs `items` with its options", hint
            )
            return
        for word in items:
            if word not in ("type", *_CHOICE):
                yield Fault(
                    ("items", word), f"unknown field `{word[:80]}`", suggest(word, ("type", *_CHOICE)), True
                )
        if items.get("type", "string") != "string":
            yield Fault(("items", "type"), "the items of an array are of type string")
        if items.get("enum") is None and items.get("oneOf") is None:
            yield Fault(("items",), "`enum` or `oneOf` is missing: what can be chosen")
        yield from self._offered(items, ("items",))

    def _offered(self, holder: Mapping[str, Json], prefix: Path) -> Iterator[Fault]:
        enum, one_of, names = holder.get("enum"), holder.get("oneOf"), holder.get("enumNames")
        if enum is not None and one_of is not None:
            yield Fault((*prefix, "oneOf"), "`enum` and `oneOf` exclude each other", "keep one of them", True)
            return
        if names is not None and enum is None:
            yield Fault((*prefix, "enumNames"), "`enumNames` needs `enum`", on_key=True)
        for word in ("enum", "oneOf"):
            listed = holder.get(word)
            if listed is None or (isinstance(listed, str) and self.open(listed)):
                continue
            fewest = self.body.get("minItems")
            if isinstance(listed, list) and isinstance(fewest, int) and fewest > len(listed) > 0:
                yield Fault(
                    ("minItems",), f"{fewest} have to be chosen, and there are only {len(listed)} options"
                )
            if not isinstance(listed, list):
                yield Fault((*prefix, word), f"expected a list, not {kind_of(listed)}")
            elif not 1 <= len(listed) <= MOST_OPTIONS:
                yield Fault((*prefix, word), _count_problem(len(listed)))
            elif word == "enum":
                yield from self._enum(listed, names, prefix)
            else:
                yield from self._one_of(listed, prefix)

    def _enum(self, listed: list[Json], names: Json, prefix: Path) -> Iterator[Fault]:
        for index, value in enumerate(listed):
            yield from self._option_value(value, (*prefix, "enum", index))
        yield from self._twins(listed, (*prefix, "enum"))
        if names is None or (isinstance(names, str) and self.open(names)):
            return
        if not isinstance(names, list) or len(names) != len(listed):
            yield Fault((*prefix, "enumNames"), "expected a list with a label for each value of `enum`")
            return
        for index, label in enumerate(names):
            if not isinstance(label, str) or is_blank(label):
                yield Fault((*prefix, "enumNames", index), f"expected text, not {kind_of(label)}")
        yield from self._twins(names, (*prefix, "enumNames"))

    def _one_of(self, listed: list[Json], prefix: Path) -> Iterator[Fault]:
        for index, one in enumerate(listed):
            where: Path = (*prefix, "oneOf", index)
            if not isinstance(one, dict) or "const" not in one or set(one) - {"const", "title"}:
                yield Fault(where, "expected a mapping of `const`, the value, and `title`, what people read")
                return
            yield from self._option_value(one["const"], (*where, "const"))
            title = one.get("title", "-")
            if not isinstance(title, str) or is_blank(title):
                yield Fault((*where, "title"), f"expected text, not {kind_of(title)}")
        yield from self._twins([one["const"] for one in listed], (*prefix, "oneOf"))
        yield from self._twins([one.get("title", one["const"]) for one in listed], (*prefix, "oneOf"))

    def _option_value(self, value: Json, path: Path) -> Iterator[Fault]:
        if self.open(value):
            return
        if self.kind in ("string", "array"):
            if not isinstance(value, str) or is_blank(value):
                blank = isinstance(value, str)
                wanted = "text that is not empty" if blank else "text"
                hint = None if blank or value is None else "quote it"
                yield Fault(path, f"expected {wanted}, not {kind_of(value)}", hint)
        elif isinstance(value, bool) or not isinstance(value, int if self.kind == "integer" else int | float):
            wanted = "a whole number" if self.kind == "integer" else "a number"
            yield Fault(path, f"expected {wanted}, not {kind_of(value)}")

    def _twins(self, listed: list[Json], path: Path) -> Iterator[Fault]:
        seen: set[str] = set()
        for index, value in enumerate(listed):
            words = str(nfc(value))
            if words in seen and not self.open(value):
                yield Fault((*path, index), f"{words[:80]!r} stands here twice")
                return
            seen.add(words)

    def _undecided(self) -> bool:
        """True if an expression decides the constraints on the default."""
        holder = self.body.get("items") if self.kind == "array" else self.body
        watched = [*(self.body.get(word) for pair in _LIMITS for word in pair), self.body.get("pattern")]
        watched += [(holder or {}).get(word) for word in _CHOICE]
        return any(value is not None and self.open(value) for value in watched)


def _count_problem(count: int) -> str:
    if count == 0:
        return "there is nothing to choose from: expected at least one option"
    return f"expected at most {MOST_OPTIONS:,} options, not {count:,}"


_NAME_HINT = "small letters, digits and `_`, a letter first, at most 64 characters"


# --- for editors -----------------------------------------------------------------------------------------

_EXPRESSION: dict[str, Json] = {"type": "string", "pattern": r"\{\{[\s\S]*\}\}"}


def _or_expression(schema: dict[str, Json]) -> dict[str, Json]:
    return {"anyOf": [schema, _EXPRESSION]}


def _schema() -> dict[str, Json]:
    number, count = _or_expression({"type": "number"}), _or_expression({"type": "integer", "minimum": 0})
    one = {"type": "object", "required": ["const"], "additionalProperties": False}
    one["properties"] = {"const": {"type": ["string", "number"]}, "title": {"type": "string"}}
    listed: dict[str, Json] = {"type": "array", "minItems": 1, "items": {"type": ["string", "number"]}}
    choice: dict[str, Json] = {
        "enum": _or_expression(listed),
        "enumNames": _or_expression({"type": "array", "items": {"type": "string"}}),
        "oneOf": _or_expression({"type": "array", "minItems": 1, "items": one}),
    }
    properties: dict[str, Json] = {
        "type": {"enum": list(_TYPES)},
        "title": {"type": "string", "description": "The label; the name as words when it is left out."},
        "description": {"type": "string", "description": "A hint below the field."},
        "default": {"type": ["string", "number", "boolean", "array"]},
        "minLength": count,
        "maxLength": count,
        "pattern": {"type": "string", "format": "regex"},
        "format": {"enum": list(FORMATS)},
        "multiline": {"type": "boolean", "description": "Several lines."},
        **choice,
        "minimum": number,
        "maximum": number,
        "minItems": count,
        "maxItems": count,
        "items": {
            "type": "object",
            "properties": {"type": {"const": "string"}, **choice},
            "additionalProperties": False,
        },
    }
    field = {"type": "object", "required": ["type"], "properties": properties, "additionalProperties": False}
    return {
        "type": "object",
        "required": ["properties"],
        "properties": {
            "type": {"const": "object"},
            "properties": {
                "type": "object",
                "minProperties": 1,
                "propertyNames": {"pattern": f"^{_NAME.pattern}$"},
                "additionalProperties": field,
            },
            "required": {"type": "array", "items": {"type": "string"}},
        },
        "additionalProperties": False,
    }


FORM_SCHEMA = _schema()
"""JSON Schema of a form, for editors."""
