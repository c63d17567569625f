"""Values that a type hint accepts unchanged. Decided without pydantic, which is a large part of a start; all other
values are left to pydantic."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from engine.language.codec import Json

_EXACT = (str, int, float, bool, list, dict, NoneType)


def is_plain(hint: Any) -> bool:
    """True if the hint is made of JSON's own types only."""
    if hint is Any or hint is None or any(hint is each for each in _EXACT):
        return True
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return all(type(each) is str for each in inner)
    if origin is dict:
        return inner[0] is str and is_plain(inner[1])
    return origin in (list, Union, UnionType) and all(map(is_plain, inner))


def fits(hint: Any, value: Json) -> bool:
    """True if the value matches a plain hint without conversion."""
    if hint is Any:
        return True
    if hint is None:
        return value is None
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return type(value) is str and value in inner
    if origin is list:
        return type(value) is list and all(fits(inner[0], each) for each in value)
    if origin is dict:
        return type(value) is dict and all(fits(inner[1], each) for each in value.values())
    if origin is None:
        return type(value) is hint
    return any(fits(each, value) for each in inner)
