"""Shape of a form as it is written: JSON Schema's flat subset, a model for each type of field.

`engine.forms.definition` checks what belongs together. A word that is null counts as left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from engine.forms.formats import pattern_problem
from engine.forms.parse import MOST_TEXT
from engine.language.diagnostics import kind_of
from engine.language.template import is_blank


def _seen(value: str) -> str:
    if is_blank(value):
        raise ValueError(f"expected text that is not empty, not {kind_of(value)}")
    return value


def _some(values: list[Any]) -> list[Any]:
    if not values:
        raise ValueError("expected at least one option")
    return values


def _pattern(value: str) -> str:
    problem = pattern_problem(value)
    if problem is not None:
        raise ValueError(problem)
    return value


_Seen: TypeAlias = Annotated[str, AfterValidator(_seen)]
_Options: TypeAlias = Annotated[list[Any], AfterValidator(_some), Field(max_length=1_000)]
_Count: TypeAlias = Annotated[int, Field(ge=0)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class OptionDoc(_Shape):
    """One option: the value, and its label."""

    const: Any
    title: _Seen = ""


class _Choice(_Shape):
    enum: _Options | None = None
    enumNames: list[_Seen] | None = None
    oneOf: Annotated[list[OptionDoc], AfterValidator(_some), Field(max_length=1_000)] | None = None


class _Field(_Shape):
    title: str | None = Field(
        None, max_length=150, description="The label; the name as words when it is left out."
    )
    description: str | None = Field(None, max_length=1_500, description="A hint below the field.")
    default: Any = None


class StringField(_Field, _Choice):
    """A text, or one of several."""

    type: Literal["string"]
    minLength: _Count | None = None
    maxLength: Annotated[int, Field(ge=1, le=MOST_TEXT)] | None = None
    pattern: Annotated[str, AfterValidator(_pattern)] | None = None
    format: Literal["email", "uri", "date", "date-time", "user", "channel"] | None = None
    multiline: bool | None = Field(None, description="Several lines.")


class NumberField(_Field, _Choice):
    """A number, or one of several."""

    type: Literal["number"]
    minimum: float | None = None
    maximum: float | None = None


class IntegerField(_Field, _Choice):
    """A whole number, or one of several."""

    type: Literal["integer"]
    minimum: int | None = None
    maximum: int | None = None


class BooleanField(_Field):
    """Yes or no."""

    type: Literal["boolean"]


class ChoicesDoc(_Choice):
    """The options of a list."""

    type: Literal["string"] = "string"


class ArrayField(_Field):
    """Several of a list."""

    type: Literal["array"]
    items: ChoicesDoc
    minItems: _Count | None = None
    maxItems: Annotated[int, Field(ge=1)] | None = None


class FormDoc(_Shape):
    """Fields to fill in."""

    type: Literal["object"] = "object"
    properties: Annotated[dict[str, Any], Field(min_length=1, max_length=300)]
    required: list[str] | None = None


FIELDS: Mapping[str, type[_Field]] = {
    "string": StringField,
    "number": NumberField,
    "integer": IntegerField,
    "boolean": BooleanField,
    "array": ArrayField,
}
"""The model of a field by its type."""
