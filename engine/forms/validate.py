"""A whole form: what came, as values or as a sentence for each field that is wrong; and the same as words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.forms.parse import Field, is_empty, read_value
from engine.language.codec import Json
from engine.language.diagnostics import suggest
from engine.language.errors import InvalidAnswer

_NEEDED = "Please fill this in."


def check_form(fields: Sequence[Field], values: Mapping[str, Json]) -> tuple[dict[str, Json], dict[str, str]]:
    """What is stored for a filled-in form, and a sentence for each field that is wrong (then the values are partial).

    A field that `values` does not name gets its default; one that is there and empty is empty: null, or an empty list
    where several can be chosen. Anything may stand in `values`; nothing is raised.
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
            found[name] = _value(field, raw)
        except InvalidAnswer as error:
            wrong[name] = str(error)
    return found, wrong


def parse_typed(field: Field, text: str) -> Json:
    """The value of a typed reply: options by label, value or number of the list, several with commas between them.

    Raises `InvalidAnswer` with what would be right.
    """
    if is_empty(text):
        raise InvalidAnswer("The answer is empty.")
    return read_value(field, text, by_number=True)


def defaults(fields: Sequence[Field]) -> dict[str, Json]:
    """The values of a form that nobody filled in; null where a field has no default."""
    return {field["name"]: field.get("default", _nothing(field)) for field in fields}


def _value(field: Field, raw: Json) -> Json:
    value = _nothing(field) if is_empty(raw) else read_value(field, raw)
    if field.get("required") and is_empty(value):
        raise InvalidAnswer(_NEEDED)
    return value


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
