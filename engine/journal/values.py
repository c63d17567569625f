"""Values that never change: what frozen dataclasses give, without code that is made for each class. Pure.

A frozen dataclass costs the better part of a millisecond when its module is loaded. Where a module has dozens of them,
as those of commands and of rows have, that was a third of the time in which the engine loads.
"""

from __future__ import annotations

from inspect import get_annotations
from typing import Any, ClassVar, Self, dataclass_transform


class Fixed:
    """Equal when all fields are; nothing can be set or deleted."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({told})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} never changes: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} never changes: {name}")


@dataclass_transform(frozen_default=True)
class Value(Fixed):
    """A subclass writes its fields down as a dataclass does, with defaults that never change either. Raises `TypeError`
    for a field that is missing or unknown; types are checked by mypy alone."""

    _names: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        own = tuple(get_annotations(cls))
        cls._names += own
        cls._defaults = cls._defaults | {name: cls.__dict__[name] for name in own if name in cls.__dict__}

    def __init__(self, *given: Any, **named: Any) -> None:
        names, values = self._names, self.__dict__
        values.update(self._defaults)
        values.update(zip(names, given, strict=False))
        values.update(named)
        if len(given) > len(names) or len(values) != len(names) or not all(map(values.__contains__, names)):
            raise TypeError(
                f"{type(self).__name__} has the fields {', '.join(names)}; got {given} and {named}"
            )

    def but(self, **changes: Any) -> Self:
        """The same with other values in these fields."""
        return type(self)(**{**self.__dict__, **changes})
