"""Forms at a terminal: filled in line by line, each field checked before the next."""

from __future__ import annotations

from engine.forms import Field, check_form, is_empty, is_numbered, limits_text, parse_typed, value_text
from engine.forms.question import Question, field_options
from engine.language.codec import Json
from engine.language.errors import InvalidAnswer

EDIT = "edit"
FILL = "fill"
"""Word that starts changing an approval's proposal, or filling in a form that can also be declined."""


class Filling:
    """Progress of filling in a form."""

    def __init__(self, fields: list[Field]) -> None:
        self._fields = fields
        self.values: dict[str, Json] = {}

    @property
    def field(self) -> Field:
        """The field that is asked for now."""
        return self._fields[len(self.values)]

    @property
    def done(self) -> bool:
        """True if every field has its value."""
        return len(self.values) == len(self._fields)

    def take(self, line: str) -> None:
        """A line for the field: empty for its default, or for nothing where it may be left out; `-` for nothing too.

        Raises `InvalidAnswer`; the same field is asked again then.
        """
        field = self.field
        nothing = is_empty(line) or (line.strip() == "-" and not field["required"])
        given: dict[str, Json] = {} if is_empty(line) else {field["name"]: None}
        if not nothing:
            given[field["name"]] = parse_typed(field, line)
        found, wrong = check_form([field], given)
        if wrong:
            raise InvalidAnswer(wrong[field["name"]])
        self.values |= found


def filling_of(prompt: Question) -> Filling | None:
    """The form of a question, where it has fields to fill in; one whose options are shown is answered with them."""
    fields = prompt.fields
    return Filling(fields) if fields and not prompt.options else None


def editing_of(prompt: Question) -> Filling | None:
    """Return the editable part of an approval's proposal with its current values; None if nothing is editable."""
    fields: list[Field] = []
    for field in prompt.fields:
        if field["name"] in prompt.editable:
            bare = {name: value for name, value in field.items() if name != "default"}
            value = prompt.values.get(field["name"])
            fields.append(bare if is_empty(value) else {**bare, "default": value})
    return Filling(fields) if fields else None


def field_lines(field: Field) -> list[str]:
    """A field as a terminal shows it: its label with what fits and its default, and its options, numbered where a
    number is clear."""
    about = [limits_text(field)] if field["type"] != "boolean" else ["yes or no"]
    if field["type"] == "choices":
        about = ["one or more, separated by commas"]
    if "default" in field:
        about.append(f"Enter for {value_text(field, field['default'])}")
    elif not field["required"]:
        about.append("Enter for none")
    told = "; ".join(part for part in about if part)
    lines = [f"{field['title']}" + (f" ({told})" if told else "")]
    if field.get("description"):
        lines.append(str(field["description"]))
    offered = [] if field["type"] == "boolean" else field_options(field) or field.get("options") or []
    numbers = is_numbered(offered)
    lines += [f"{f'{n})' if numbers else '-'} {option['label']}" for n, option in enumerate(offered, 1)]
    return lines
