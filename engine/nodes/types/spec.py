"""Definition of a node type: its fields under `with`, its outputs, its reaction to a crash, its preview and its
progress; and the output types that several node types share.

A type is one module of this package with a `SPEC`; `engine.nodes.types.registry` lists the modules.

In shared types, a value that is null only after a person declared an interrupted node done counts as non-null: that
person knows the consequences.

References to secrets
---------------------
In the fields that `NodeSpec.secret_fields` names (`env` of shell, the request of http), an expression `{{ secrets.NAME
}}` becomes a reference, and only references are journaled:

* `{"$secret": "NAME"}` if it is the whole text,
* `{"$secret_text": ["Bearer ", {"$secret": "NAME"}]}` if there is text around it.

The edge resolves them (`engine.nodes.runtime.secrets.Resolver`) at the last moment, in those fields and nowhere else.
Data cannot pose as a reference: in those fields evaluation refuses data with such a key
(`engine.language.expressions`), a flow that spells one out does not load, and in every other field the same mapping is
data and stays data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, field

from engine.forms import normalize_form
from engine.language.codec import Json, copy, encode
from engine.language.diagnostics import Fault, faults_of, field_names
from engine.language.errors import SaysoError
from engine.language.expressions import Markup, Places
from engine.language.template import has_expression, is_marker_key
from engine.nodes.types.plain import fits
from engine.types.annotations import Sources, no_source
from engine.types.lattice import (
    ANY,
    MOMENTS,
    NULL,
    NUMBERS,
    TEXT,
    TEXTS,
    UNDEFINED,
    Type,
    either,
    list_of,
    mapping_of,
)
from engine.types.pieces import Record

if TYPE_CHECKING:
    from pydantic import BaseModel

    from engine.nodes.types.fields import AnyNames, Config


OnCrash: TypeAlias = Literal["again", "ask"]

Mode: TypeAlias = Literal["pure", "prompt", "timer", "delivery", "run", "container"]
"""Executor of a node's work: the core itself, people, a timer, the outbox, a runner outside the engine, or the nodes
that it holds."""

_OF_SIZE = ("greater_than", "less_than", "too_short", "too_long", "string_too", "missing")
"""Prefixes of pydantic's error types for a value that is of the right kind but out of bounds."""

PARTS = ("body", "edges", "branches", "cases", "default")
"""The fields of a container that are beside `with`."""

Model: TypeAlias = "type[Config] | type[AnyNames]"


class InvalidConfig(SaysoError):
    """A node's `with`, once evaluated, does not fit its type; names the field."""

    code = "config_invalid"


UNKNOWN_WORK = "what this type does with that"
"""Label for types whose work is unknown here."""

NOT_LEFT_OUT = "null does not count as left out"
"""Error for a field that says what is acted on, where, or by whom."""
GUARD = "guard it with `if`, or with `default(..., true)`"

Given: TypeAlias = Mapping[str, Json]
"""Mapping under `with`, as written or evaluated."""


def again(_: Given) -> OnCrash:
    """Whatever is under `with`, it may run again after a crash."""
    return "again"


def ask(_: Given) -> OnCrash:
    """Ask a person after a crash, whatever the `with`."""
    return "ask"


class Known(Struct, frozen=True):
    """Known facts about a node, to derive the type of its output."""

    with_: Given
    within: Type | None = None
    """Type of its `with`; None if it was not derived."""
    inner: Mapping[str, Mapping[str, Type]] = field(default_factory=dict)
    """The outputs of the lists that it holds, by part."""
    collected: Type | None = None
    """Type of the list that `collect` builds from the rounds."""
    sources: Sources = no_source
    """The texts of Python modules."""


class NodeSpec(Struct, frozen=True, kw_only=True):
    """One node type. The registry sets `name` and `mode`."""

    config: Model
    """Model of the mapping under `with`."""
    name: str = ""
    mode: Mode = "run"
    """Executor of the work."""

    # --- output
    outputs: Mapping[str, str] | None = field(default_factory=dict)
    """The fields of `nodes.<id>` with a sentence each; None when they are the keys of `with`."""
    any_output: bool = False
    """True if the output's fields are unknown before it ran."""
    output: Callable[[Known], Type] | None = None
    """The type of the output; None where only the names of its fields are known."""
    fails: bool = False
    """Mode `pure`: whether it fails, with its `message`; else its output is its evaluated `with`."""

    # --- effects
    timeout: float | None = None
    """Modes `run` and `container`: the default of a node's `timeout`, in seconds."""
    on_crash: Callable[[Given], OnCrash] = again
    """The default of `on_crash` for a `with`."""
    crash_words: str = ""
    """Description of the crash policy if it depends on the `with`."""
    unknown_output: Mapping[str, Json] = field(default_factory=dict)
    """The output when a person says that an interrupted node is done."""
    preview: Callable[[Given], Iterable[str]] | None = None
    """Lines that describe the node's action to people; None: its name and the fields (`engine.nodes.types.preview`)."""
    previewed: frozenset[str] = frozenset()
    """The fields that `preview` tells of; those that it does not are listed behind it."""
    most_shown: int = 20_000
    """Characters of that text; what is longer is cut, and says so."""
    uninspectable: str = ""
    """Part of the action that cannot be shown in advance."""

    # --- its fields
    secret_fields: frozenset[str] = frozenset()
    """Fields in which secrets may stand."""
    verbatim_fields: frozenset[str] = frozenset()
    """Fields that are not evaluated with the others."""
    static_fields: frozenset[str] = frozenset()
    """Fields that are read when the flow is loaded, and can have no expressions."""
    condition_fields: frozenset[str] = frozenset()
    """Fields that are conditions, evaluated on their own."""
    schema_fields: frozenset[str] = frozenset()
    """Fields that hold a JSON Schema."""
    sparse_fields: frozenset[str] = frozenset()
    """Fields that are recorded only if they are given, for approvals older than the field."""
    brief: bool = False
    """True if all fields are recorded only if they differ from their default."""
    markup: Mapping[str, Markup] = field(default_factory=dict)
    """Fields with markup and its kind: values of expressions in them are escaped."""
    exact: Places = ()
    """Fields, and keys in them, that say what is acted on, where, or by whom: null is an error there, inside a text and
    instead of a value."""
    node_fields: Mapping[str, str] = field(default_factory=dict)
    """Fields that name an earlier node, each with the type that this node must have."""
    fits: Callable[[Mapping[str, Any], Record, Sources], Iterator[Fault]] | None = None
    """Yields faults between parts of a node that are valid each by itself. Paths begin at the node."""
    warnings: Callable[[str, Given], Iterator[tuple[str, str]]] | None = None
    """Yields probable mistakes in a valid node, given its id and `with`: messages with a hint each."""

    # --- children
    parts: Mapping[str, str] = field(default_factory=dict)
    """Fields of a container beside `with`, out of `PARTS`, with a sentence each."""
    required_parts: tuple[str, ...] = ()
    item_name: Callable[[Given], str] | None = None
    """Returns the body's name for the item of a round."""
    variables: Callable[[Known, Callable[[], Mapping[str, Type]]], dict[str, Type]] | None = None
    """Returns the body's variables beside the nodes; the second argument gives the types of the body's own outputs."""
    calls: bool = False
    """True if it runs the flow that its `flow` names."""
    talks: bool = False
    """True if it is a conversation with a model."""

    # --- documentation
    described: Mapping[str, type[Config]] = field(default_factory=dict)
    """The mappings that its fields are made of, for the flow reference."""
    internal: bool = False
    """True if it never appears in a flow file."""

    @property
    def doc(self) -> str:
        """Return the description of the type for the flow reference."""
        import inspect  # only for a reference and a schema

        return inspect.cleandoc(self.config.__doc__ or "")  # Python 3.13 dedents it already

    @property
    def hands_on(self) -> bool:
        """True if its texts are for programs and other nodes, and not for people or a model."""
        return self.mode in ("pure", "run", "container") and not (self.fails or self.talks)

    def field_names(self) -> list[str]:
        """Return the fields of `with`; empty for a type that takes any."""
        return [] if self.outputs is None else field_names(self.config)

    def required(self, name: str) -> bool:
        """True if a field of `with` has no default."""
        return any(
            name in (key, field.alias) and field.is_required()
            for key, field in self.config.model_fields.items()
        )

    def output_fields(self, with_: Mapping[str, Json]) -> frozenset[str] | None:
        """Return the fields that `nodes.<id>` has for a node with this `with`; None if unknown."""
        if self.any_output:
            return None
        return frozenset(with_ if self.outputs is None else self.outputs)

    def output_type(self, known: Known) -> Type:
        """Return the type of `nodes.<id>`, as far as it is known."""
        if self.output is not None:
            return self.output(known)
        fields = self.output_fields(known.with_)
        return ANY if fields is None else mapping_of(dict.fromkeys(fields, ANY))

    def check(self, with_: Mapping[str, Json]) -> list[Fault]:
        """Return the faults of a `with` as it is in a file; values that an expression will give are not checked."""
        faults = [fault for fault, given in self._read(with_)[1] if fault.on_key or not has_expression(given)]
        faults += self.config.conflicts(with_)
        for name in with_.keys() & self.static_fields:
            if has_expression(with_[name]):
                faults.append(Fault((name,), f"`{name}` cannot contain expressions", "write it out"))
        for name in self.secret_fields & with_.keys():
            faults += spelled_out((name,), with_[name])
        return faults

    def misfits(self, filled: Json) -> Iterator[tuple[Fault, bool]]:
        """Yield faults of a `with` that has sample values for its expressions, each with True if any value of that kind
        would be wrong. Values out of bounds do not count."""
        from pydantic import ValidationError

        try:
            self._validated(filled if isinstance(filled, dict) else {})
        except ValidationError as error:
            kinds = {tuple(detail["loc"]): detail["type"] for detail in error.errors(include_url=False)}
            for fault, _ in faults_of(error, self.config):
                kind = kinds.get(fault.path, "")
                if not kind.startswith(_OF_SIZE):
                    yield fault, kind.endswith("_type")

    def validate(self, evaluated: Mapping[str, Json]) -> BaseModel:
        """Build the configuration from an evaluated `with`. Raises `InvalidConfig`."""
        config, found = self._read(evaluated)
        faults = [fault for fault, _ in found]
        faults.extend(self.config.conflicts(evaluated))
        if config is None or faults:
            raise InvalidConfig("; ".join(sentence(fault) for fault in faults))
        return config

    def normalize(
        self, evaluated: Mapping[str, Json], written: Mapping[str, Json] | None = None
    ) -> dict[str, Json]:
        """Return the configuration as plain JSON, with defaults filled in: seconds, bytes, the names of the file;
        `written` is the `with` of the file.

        Raises `InvalidConfig`.
        """
        given = written or {}
        for name in self.exact:
            if evaluated.get(name) is None and given.get(name) is not None:
                raise InvalidConfig(f"{name}: {NOT_LEFT_OUT} ({GUARD})")
        # As `model_dump`, without its many arguments.
        dump = self.config.__pydantic_serializer__.to_python
        normalized: dict[str, Json] = dump(
            self.validate(evaluated), by_alias=True, exclude_defaults=self.brief
        )
        for name in self.sparse_fields:
            if normalized.get(name) is None:
                normalized.pop(name, None)
        if self.mode == "prompt" and normalized.get("form") is not None:
            try:
                normalized["form"] = normalize_form(normalized["form"])
            except ValueError as error:
                raise InvalidConfig(str(error)) from error
        return normalized

    def _read(self, with_: Given) -> tuple[BaseModel | None, list[tuple[Fault, Any]]]:
        """Return the configuration, or None with its faults, each with the value that it is about."""
        try:
            return self._validated(with_), []
        except ValueError as error:
            from pydantic import (
                ValidationError,  # comes with the first model; most processes read few or none
            )

            if not isinstance(error, ValidationError):
                raise
            return None, faults_of(error, self.config)

    def _validated(self, with_: Mapping[str, Json]) -> BaseModel:
        """Raises `ValidationError`."""
        return self.config.model_validate(dict(with_))


def sentence(fault: Fault) -> str:
    """A fault as one sentence, with its place."""
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault.path).lstrip(".")
    text = f"{where}: {fault.message}" if where else fault.message
    return f"{text} ({fault.hint})" if fault.hint else text


def spelled_out(path: tuple[str | int, ...], value: Json) -> Iterator[Fault]:
    """References to secrets that a file spells out instead of an expression."""
    if isinstance(value, dict):
        for key, item in value.items():
            if is_marker_key(key):
                yield Fault(
                    (*path, key),
                    f"`{key}` cannot be written by hand",
                    "write {{ secrets.NAME }}",
                    on_key=True,
                )
            else:
                yield from spelled_out((*path, key), item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from spelled_out((*path, index), item)


class OwnSpec(NodeSpec, frozen=True, kw_only=True):
    """A node type of others. Its values are checked as JSON, so that dates and the like may be fields."""

    package: str
    instance: Any
    """An instance of its class, which does the work."""
    plain: Mapping[str, tuple[Any, Any]] | None = None
    """Type hint and default (`...` without one) by field, for a function with plain hints only. A configuration that
    matches is used without the model, and pydantic is not loaded."""

    def check(self, with_: Given) -> list[Fault]:
        """See `NodeSpec.check`."""
        if self._plainly(with_, written=True) is None:
            return super().check(with_)
        return [
            fault for name in self.secret_fields & with_.keys() for fault in spelled_out((name,), with_[name])
        ]

    def given(self, config: Given) -> Any:
        """The configuration as `run` takes it. Raises `ValidationError`."""
        plain = self._plainly(config)
        return self.config.model_validate_json(encode(config)) if plain is None else SimpleNamespace(**plain)

    def normalize(
        self, evaluated: Mapping[str, Json], written: Mapping[str, Json] | None = None
    ) -> dict[str, Json]:
        """See `NodeSpec.normalize`."""
        plain = self._plainly(evaluated)
        if plain is not None:
            return plain
        normalized: dict[str, Json] = self.validate(evaluated).model_dump(mode="json", by_alias=True)
        return normalized

    def _validated(self, with_: Mapping[str, Json]) -> BaseModel:
        return self.config.model_validate_json(encode(dict(with_)))

    def _plainly(self, with_: Given, *, written: bool = False) -> dict[str, Json] | None:
        """Return a copy of the configuration with its defaults if it matches the plain hints; None if only the model
        can tell. In a `written` one, an expression may take the place of any field."""
        if self.plain is None or not with_.keys() <= self.plain.keys():
            return None
        filled: dict[str, Json] = {}
        for name, (hint, default) in self.plain.items():
            value = with_.get(name, default)
            left_open = written and isinstance(value, str) and has_expression(value)
            if value is ... or not (left_open or fits(hint, value)):
                return None
            filled[name] = value
        copied: dict[str, Json] = copy(filled)
        return copied


# --- output types ------------------------------------------------------------------------------------------


AT = "The time, in UTC."
BODY_EDGES = "The edges between these nodes, if they form a graph; see [Graphs](#graphs)."

PERSON = mapping_of({"id": TEXTS, "name": Type(TEXT | NULL), "email": Type(TEXT | NULL)})
"""Person who answered."""
_UNKNOWN = Type(TEXT | NULL, why="it is optional")
REQUESTER = mapping_of({"id": TEXTS, **dict.fromkeys(("name", "email", "manager", "timezone"), _UNKNOWN)})
"""Person who asked for the run."""

FILES = list_of(mapping_of({"name": TEXTS, "path": TEXTS, "size": NUMBERS, "type": TEXTS}))

MESSAGES = list_of(mapping_of({"text": TEXTS, "by": PERSON, "at": MOMENTS}))
"""Messages from people that answered no question."""

_MORE = either(ANY, UNDEFINED)

ERROR = mapping_of(
    {"type": TEXTS, "message": TEXTS, **dict.fromkeys(("details", "by", "reason", "at", "values"), _MORE)}
)
"""Reason why a node failed; for a rejected approval also who rejected it."""


def rounds(known: Known, item: Type) -> Type:
    """The output of a container that goes through its body in rounds."""
    record = mapping_of(
        {
            "index": NUMBERS,
            "item": item,
            "outputs": mapping_of(known.inner.get("body", {})),
            "error": either(ANY, UNDEFINED),
        }
    )
    fields = {"iterations": list_of(record)}
    return mapping_of(fields if known.collected is None else {**fields, "collected": known.collected})


# --- progress ----------------------------------------------------------------------------------------------


class Meter(Struct, frozen=True):
    """Progress of a node for people to see: `done` of `total`, in any unit, and a short text."""

    done: float
    total: float
    text: str = ""

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return min(1.0, max(0.0, self.done / self.total)) if self.total > 0 else 0.0


def no_meter(meter: Meter) -> None:
    """Ignore the meter."""
