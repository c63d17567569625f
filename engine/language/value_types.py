"""Values of expressions: plain JSON of bounded size, and the errors about them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

import orjson
from jinja2 import Undefined

from engine.language.codec import Json

MAX_BYTES = 2**20
"""The largest value that an expression may give, and that a filter may build, in bytes of JSON."""

_TEXT_MARGIN = MAX_BYTES // 4


class BadValue(ValueError):
    """The input of a filter or an operator is not accepted; the message is for the author of a flow."""


class TooLarge(BadValue):
    """An expression would build a value beyond `MAX_BYTES`."""

    def __init__(self) -> None:
        super().__init__("the value would be larger than 1 MiB")


def fail_undefined(value: Undefined) -> NoReturn:
    """Raise the error that names the undefined value."""
    value._fail_with_undefined_error()


def plain(value: Any) -> Json:
    """Return the value as plain JSON: tuples become lists, mappings dicts. Raises for values that JSON cannot carry."""
    if value is None or type(value) is bool:
        return value
    return _Plain().visit(value)


class _Plain:
    """One walk with a budget, so that a list with ten thousand copies of a large value is noticed early."""

    def __init__(self) -> None:
        self.left = MAX_BYTES

    def visit(self, value: Any) -> Json:
        kind = type(value)
        if kind is str:
            return self._spend(value, len(value))
        if kind is float:
            if not math.isfinite(value):
                raise BadValue(f"the result is {value}, which JSON cannot represent")
            return self._spend(value, 1)
        if kind is int:
            if not -(2**63) <= value < 2**64:
                raise BadValue("the result is an integer beyond 64 bits")
            return self._spend(value, 1)
        if value is None or kind is bool:
            return self._spend(value, 1)
        if isinstance(value, list | tuple):
            self._spend(None, 2)
            return [self.visit(item) for item in value]
        if isinstance(value, Mapping):
            result: dict[str, Json] = {}
            self._spend(None, 2)
            for key, item in value.items():
                if type(key) is not str:
                    raise BadValue(f"the result has a key that is not text ({key!r})")
                self._spend(None, len(key) + 1)
                result[key] = self.visit(item)
            return result
        if isinstance(value, Undefined):
            fail_undefined(value)
        raise BadValue(f"the result is a {kind.__name__}, not a JSON value")

    def _spend(self, value: Json, cost: int) -> Json:
        self.left -= cost
        if self.left < 0:
            raise TooLarge
        return value


def as_text(value: Any) -> str:
    """Return a value for use inside text: text unchanged, everything else as JSON."""
    if type(value) is str:
        return value
    return orjson.dumps(plain(value)).decode()


def check_size(value: Json) -> Json:
    """The value itself, a JSON value; raises `TooLarge` beyond `MAX_BYTES`."""
    if type(value) is str:
        size = len(value)
        if size > _TEXT_MARGIN:
            size = len(value.encode("utf-8", "surrogatepass"))
    elif isinstance(value, dict | list):
        size = len(orjson.dumps(value))
    else:
        return value
    if size > MAX_BYTES:
        raise TooLarge
    return value
