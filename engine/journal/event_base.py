"""What every event is made of: fields of a type each, names on the wire, and values that never change. Pure.

A class says its fields as a dataclass does, and what they take is what pydantic would make of them in strict mode. What
is checked is worked out from the annotations when the first event of a class is made or read: a process meets a few of the
fifty types, and a model of pydantic's for each of them was a third of what the engine takes to load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NamedTuple,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from engine.journal.values import Fixed
from engine.language.codec import Json

Check = Callable[[Any], bool]


class UnknownField(TypeError):
    """An object has a field that its class does not have: another release wrote it."""


class EventField(NamedTuple):
    """One field: its name in Python and on the wire, and what it takes: `kinds` are the types a value may have (None: any
    JSON value), and `inside` looks at what stands in it, or which of some words it is."""

    name: str
    wire: str
    annotation: Any
    required: bool
    default: Json
    kinds: frozenset[type] | None
    inside: Check | None


class _Plan(NamedTuple):
    fields: tuple[EventField, ...]
    names: Mapping[str, str]
    """By name on the wire."""
    defaults: dict[str, Json]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Frozen(Fixed):
    """Values with checked fields. Made with keywords; raises `TypeError` for a field that is missing, unknown or of another
    type, naming it."""

    def __init__(self, **given: Any) -> None:
        plan = _plan(type(self))
        self.__dict__.update(_checked(type(self), plan, {**plan.defaults, **given}))

    @classmethod
    def fields(cls) -> tuple[EventField, ...]:
        """The fields, those that all share first."""
        return _plan(cls).fields

    @classmethod
    def from_wire(cls, fields: Mapping[str, Json]) -> Self:
        """The value of a JSON object. Raises `TypeError`."""
        plan, names = _plan(cls), _plan(cls).names
        try:
            given = {names[wire]: value for wire, value in fields.items()}
        except KeyError as error:
            raise UnknownField(f"{_name(cls)} has no field {error}") from None
        made = cls.__new__(cls)
        made.__dict__.update(_checked(cls, plan, {**plan.defaults, **given}))
        return made

    def to_wire(self) -> dict[str, Json]:
        """The JSON object; absent fields are left out."""
        values = self.__dict__
        names = _plan(type(self)).names
        return {wire: values[name] for wire, name in names.items() if values[name] is not None}

    def but(self, **changes: Any) -> Self:
        """The same with other values in these fields."""
        return type(self)(**{**self.__dict__, **changes})


def _checked(cls: type, plan: _Plan, values: dict[str, Any]) -> dict[str, Any]:
    """The values, each of its type; lists and mappings are the event's own from here on."""
    if len(values) > len(plan.fields):
        unknown = values.keys() - {field.name for field in plan.fields}
        raise TypeError(f"{_name(cls)} has no field {', '.join(sorted(unknown))}")
    for name, _, _, _, _, kinds, inside in plan.fields:
        try:
            value = values[name]
        except KeyError:
            raise TypeError(f"{_name(cls)}.{name} is missing") from None
        if kinds is None:
            continue
        kind = type(value)
        if kind not in kinds:
            value = _own(cls, name, value, kinds)
            kind = type(value)
        if inside is not None and value is not None and not inside(value):
            raise TypeError(f"{_name(cls)}.{name} cannot be {value!r}")
        if kind is dict or kind is list:
            values[name] = value.copy()
    return values


def _own(cls: type, name: str, value: Any, kinds: frozenset[type]) -> Any:
    """What was given as another sort of list or mapping."""
    if list in kinds and isinstance(value, tuple):
        return list(value)
    if dict in kinds and isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{_name(cls)}.{name} cannot be a {type(value).__name__}")


def _name(cls: Any) -> str:
    return str(getattr(cls, "type", cls.__name__))


# --- from annotations ------------------------------------------------------------------------------------------


_PLANS: dict[type, _Plan] = {}


def _plan(cls: type) -> _Plan:
    plan = _PLANS.get(cls)
    if plan is None:
        fields = tuple(_field(cls, name, hint) for name, hint in get_type_hints(cls).items())
        defaults = {field.name: field.default for field in fields if not field.required}
        plan = _PLANS[cls] = _Plan(fields, {field.wire: field.name for field in fields}, defaults)
    return plan


def _field(cls: type, name: str, annotation: Any) -> EventField:
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    (told,) = [option for option in options if option is not NoneType]
    kinds, inside = _taken(told)
    if kinds is not None and NoneType in options:
        kinds |= {NoneType}
    first, *rest = name.split("_")
    wire = first + "".join(word.capitalize() for word in rest)
    required = not hasattr(cls, name)
    return EventField(name, wire, annotation, required, getattr(cls, name, None), kinds, inside)


def _taken(annotation: Any) -> tuple[frozenset[type] | None, Check | None]:
    """The types that values of an annotation have, and what else has to be looked at."""
    if annotation is Any:
        return None, None
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return frozenset(map(type, inner)), frozenset(inner).__contains__
    if origin is list:
        each = _test(inner[0])
        return frozenset({list}), lambda value: all(map(each, value))
    if origin is dict:
        each = _test(inner[1])
        return frozenset({dict}), lambda value: all(
            type(key) is str and each(item) for key, item in value.items()
        )
    return frozenset({annotation}), None


def _test(annotation: Any) -> Check:
    kinds, inside = _taken(annotation)
    if kinds is None:
        return lambda value: True
    if inside is None:
        return lambda value: type(value) in kinds
    return lambda value: type(value) in kinds and inside(value)
