"""Lists of codes that are no failure: exit codes of programs, statuses of answers."""

from __future__ import annotations

from typing import Any

from pydantic import PlainSerializer, ValidatorFunctionWrapHandler, WithJsonSchema, WrapValidator


def _or_any(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if value == "any" else check(value)


# Not a union with the word: what pydantic says of a union names all of its members.
OR_ANY = WrapValidator(_or_any)

AS_IT_IS = PlainSerializer(lambda value: value)


def codes(least: int, most: int) -> WithJsonSchema:
    """The JSON Schema of such a list, or the word `any`."""
    numbers = {
        "type": "array",
        "minItems": 1,
        "items": {"type": "integer", "minimum": least, "maximum": most},
    }
    return WithJsonSchema({"anyOf": [{"enum": ["any"]}, numbers]})
