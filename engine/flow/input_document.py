"""The shape of an input: of a flow, and of a tool that a flow gives to agents."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from engine.flow.model import Input, InputType
from engine.language.codec import Json
from engine.nodes.types.fields import Config


class ItemsDoc(Config):
    """Items of an array."""

    type: InputType = "string"
    """The type of every item."""


class InputDoc(Config):
    """One input."""

    type: InputType = "string"
    """`string`, `number`, `integer`, `boolean`, `array` or `object`."""
    description: str | None = None
    """Shown to people when sayso asks for the input."""
    default: Json = None
    """The default value. It is not evaluated."""
    required: bool | None = None
    """True if a run cannot start without it. Default: true without a `default`. An optional input without a default
    is null."""
    choices: Annotated[list[Any], Field(min_length=1)] | None = None
    """The only values allowed; for an array, the only items."""
    items: ItemsDoc | None = None
    """For an array, the `{type: ...}` of its items."""

    @property
    def is_required(self) -> bool:
        """True if a run cannot start without it."""
        return "default" not in self.model_fields_set if self.required is None else self.required

    def as_input(self, name: str) -> Input:
        """The input that is in a file under this name."""
        return Input(
            name=name,
            type=self.type,
            description=self.description,
            default=self.default,
            required=self.is_required,
            choices=None if self.choices is None else tuple(self.choices),
            items=None if self.items is None else self.items.type,
        )
