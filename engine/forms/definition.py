"""A form as written in a flow: JSON Schema's flat subset, checked when the flow is loaded, settled when it is asked.

The same checks run twice. While a flow is loaded, `default`, options and limits may be expressions, whose values are
unknown; once they are evaluated, the values may be wrong: no option left, a default that is not one of them. Then the
node fails with the loader's message. The shape of a field is a model (`engine.forms.document`), which is loaded by the
first form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from engine.forms.formats import lengths
from engine.forms.parse import MOST_PATTERN_TEXT, MOST_TEXT, is_empty, read_value
from engine.language.codec import Json, clean_text, nfc
from engine.language.diagnostics import Fault, Path, faults_of, faults_under, kind_of, suggest
from engine.language.errors import InvalidAnswer
from engine.language.template import has_expression, is_blank

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_NAME_HINT = "lowercase letters, digits and `_`, starting with a letter, at most 64 characters"
_LIMITS = (("minLength", "maxLength"), ("minimum", "maximum"), ("minItems", "maxItems"))
_CHOICE = ("enum", "enumNames", "oneOf")
_NOT_OF_CHOICES = ("format", "pattern", "multiline", "minimum", "maximum", "minLength", "maxLength")
_LITERAL = ("type", "format", "multiline")
"""Words that no expression can stand for."""
_SECRET_NAMES = re.compile(
    r"(?:.*_)?(?:password|passwd|passphrase|secret|private_key|api_key|access_token)", re.ASCII
)
_SECRET_HINT = "answers stay in the journal and the thread; use `secrets.NAME` where you need a secret"


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
    from engine.forms.document import FormDoc

    faults = list(_shape(FormDoc, form, lenient=False))
    yield from faults
    if faults:
        return
    for index, name in enumerate(form.get("required") or ()):
        if name not in form["properties"]:
            hint = suggest(name, form["properties"])
            yield Fault(("required", index), f"there is no field {name[:80]!r}", hint)
    for name, body in form["properties"].items():
        yield from faults_under(("properties", name), _Field(name, body, lenient).faults())


def _shape(model: Any, value: Json, lenient: bool) -> Iterator[Fault]:
    """Yield the faults that a model finds, but for those of values that an expression will decide."""
    from pydantic import ValidationError

    try:
        model.model_validate(value)
    except ValidationError as error:
        for fault, given in faults_of(error, model):
            literal = fault.path and fault.path[-1] in _LITERAL
            if fault.on_key or literal or not (lenient and has_expression(given)):
                yield fault


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
        from engine.forms.document import FIELDS

        if not _NAME.fullmatch(self.name):
            yield Fault((), f"{self.name[:80]!r} is not a valid field name", _NAME_HINT, on_key=True)
        elif _SECRET_NAMES.fullmatch(self.name):
            yield Fault((), "a form does not ask for secrets", _SECRET_HINT, on_key=True)
        if not isinstance(self.given, dict):
            yield Fault((), f"expected a mapping such as {{type: string}}, not {kind_of(self.given)}")
            return
        if self.kind not in FIELDS:
            yield self._type_fault(FIELDS)
            return
        sound = {word: self.body[word] for word in self.body if word in FIELDS[self.kind].model_fields}
        shape = [*self._misplaced(FIELDS), *_shape(FIELDS[self.kind], sound, self.lenient)]
        shape = shape or [*self._together(), *self._choice()]
        yield from shape
        default = self.body.get("default")
        if shape or is_empty(default) or self.open(default) or self._undecided():
            return
        field = _normalized(self.name, {**self.body, "default": None}, required=False)
        try:
            read_value(field, default)
        except InvalidAnswer as error:
            yield Fault(("default",), f"the default does not fit: {error}")

    def _type_fault(self, fields: Mapping[str, Any]) -> Fault:
        if self.body.get("type") is None:
            return Fault((), "`type` is missing", f"one of {', '.join(fields)}")
        if self.kind == "object":
            return Fault(
                ("type",), "a field cannot be an object: forms are flat", "make each of its parts a field"
            )
        given = kind_of(self.body["type"])
        return Fault(
            ("type",), f"expected one of {', '.join(fields)}, not {given}", suggest(self.kind, fields)
        )

    def _misplaced(self, fields: Mapping[str, Any]) -> Iterator[Fault]:
        """Yield words that the field's type does not have."""
        allowed = fields[self.kind].model_fields
        for word in [word for word in self.body if word not in allowed]:
            fits = ", ".join(kind for kind, model in fields.items() if word in model.model_fields)
            if word == "required":
                yield Fault(
                    (word,), "`required` belongs beside `properties`, as a list of names", on_key=True
                )
            elif self.kind == "array" and word in _CHOICE:
                yield Fault((word,), f"`{word}` of an array belongs under `items`", on_key=True)
            elif fits:
                yield Fault(
                    (word,), f"`{word}` is for {fits}, and this field is of type {self.kind}", on_key=True
                )
            else:
                yield Fault((word,), f"unknown field `{word[:80]}`", suggest(word, allowed), on_key=True)
        wanted = self.body.get("format")
        if isinstance(wanted, str) and wanted.lower() in ("password", "secret"):
            yield Fault(("format",), "a form does not ask for secrets", _SECRET_HINT)

    def _together(self) -> Iterator[Fault]:
        """Yield faults between words that are sound each by itself."""
        body = {word: value for word, value in self.body.items() if value is not None}
        for least, most in _LIMITS:
            low, high = body.get(least), body.get(most)
            if (
                low is not None
                and high is not None
                and not (self.open(low) or self.open(high))
                and low > high
            ):
                yield Fault((least,), f"`{least}` is more than `{most}`")
        if body.get("multiline") and "format" in body:
            yield Fault(("multiline",), "text with a `format` has one line", on_key=True)
        told = [word for word in ("maxLength", "minLength", "pattern") if word in body]
        if not told or any(self.open(body[word]) for word in told):
            return
        # Limits of a text that leave no text, with its format and its pattern.
        shortest, longest = body.get("minLength", 0), body.get("maxLength", MOST_TEXT)
        least_of, most_of = lengths(body.get("format"), body.get("pattern"))
        bound = MOST_PATTERN_TEXT if "pattern" in body and "maxLength" not in body else longest
        is_told = "maxLength" in body and shortest > longest
        if max(shortest, least_of) > min(bound, most_of) and not is_told:
            words = [word for word in ("minLength", "maxLength", "format", "pattern") if word in body]
            together = " and ".join(f"`{word}`" for word in words)
            yield Fault((told[0],), f"no text fits {together}", "allow at least one possible answer")

    # --- options -----------------------------------------------------------------------------------------

    def _choice(self) -> Iterator[Fault]:
        prefix: Path = ()
        holder: Mapping[str, Json] = self.body
        if self.kind == "array":
            holder, prefix = self.body["items"], ("items",)
            if holder.get("enum") is None and holder.get("oneOf") is None:
                yield Fault(prefix, "`enum` or `oneOf` is missing: list the options")
        else:
            chosen = any(self.body.get(word) is not None for word in ("enum", "oneOf"))
            for word in _NOT_OF_CHOICES if chosen else ():
                if self.body.get(word) is not None:
                    yield Fault((word,), f"a choice takes no `{word}`", on_key=True)
        enum, one_of, names = (holder.get(word) for word in ("enum", "oneOf", "enumNames"))
        if enum is not None and one_of is not None:
            yield Fault(
                (*prefix, "oneOf"), "`enum` and `oneOf` cannot be used together", "keep one of them", True
            )
            return
        if names is not None and enum is None:
            yield Fault((*prefix, "enumNames"), "`enumNames` needs `enum`", on_key=True)
        listed = one_of if enum is None else enum
        if not isinstance(listed, list):
            return
        fewest = self.body.get("minItems")
        if isinstance(fewest, int) and fewest > len(listed):
            yield Fault(("minItems",), f"{fewest} must be chosen, but there are only {len(listed)} options")
        if enum is None:
            path: Path = (*prefix, "oneOf")
            values = [one["const"] for one in listed]
            labels = [one.get("title", one["const"]) for one in listed]
        else:
            path = (*prefix, "enum")
            values, labels = listed, names if isinstance(names, list) else []
            if isinstance(names, list) and len(names) != len(listed):
                yield Fault((*prefix, "enumNames"), "expected a list with a label for each value of `enum`")
        for index, value in enumerate(values):
            yield from self._option_value(
                value, (*path, index) if enum is not None else (*path, index, "const")
            )
        yield from self._twins(values, path)
        yield from self._twins(labels, path if enum is None else (*prefix, "enumNames"))

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
                yield Fault((*path, index), f"{words[:80]!r} appears twice")
                return
            seen.add(words)

    def _undecided(self) -> bool:
        """True if an expression decides the constraints on the default."""
        holder = self.body.get("items") if self.kind == "array" else self.body
        watched = [*(self.body.get(word) for pair in _LIMITS for word in pair), self.body.get("pattern")]
        watched += [(holder or {}).get(word) for word in _CHOICE]
        return any(value is not None and self.open(value) for value in watched)
