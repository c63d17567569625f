"""What a node type is: how its `with` is checked and settled, and what a crash means for it.

References to secrets
---------------------
In the fields that `NodeSpec.secret_fields` names (`env` of shell, the request of http), an expression
`{{ secrets.NAME }}` becomes a reference, and what is journaled has references only:

* `{"$secret": "NAME"}` where it is the whole text,
* `{"$secret_text": ["Bearer ", {"$secret": "NAME"}]}` where there is text around it.

The edge resolves them (`engine.nodes.runtime.secrets.Resolver`) at the last moment, in those fields and nowhere else. Data cannot
pose as a reference: in those fields evaluation refuses data with such a key (`engine.language.expressions`), a flow that
spells one out does not load, and in every other field the same mapping is data and stays data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from engine.forms import settle_form
from engine.language.codec import Json, encode
from engine.language.diagnostics import Fault, faults_of, field_names
from engine.language.errors import SaysoError
from engine.language.expressions import Markup
from engine.language.template import has_expression, is_marker_key
from engine.types.lattice import ANY, Type, mapping_of

if TYPE_CHECKING:
    from pydantic import BaseModel

    from engine.nodes.types.configs import Config, SetConfig

OnCrash: TypeAlias = Literal["again", "ask"]

Mode: TypeAlias = Literal["pure", "prompt", "timer", "delivery", "run", "container"]
"""Who does a node's work: the core itself, people, a timer, the outbox, a runner outside the engine, or the nodes
that it holds."""

_OF_SIZE = ("greater_than", "less_than", "too_short", "too_long", "string_too", "missing")
"""The beginnings of what pydantic calls a value that another one of its kind could be."""

PARTS = ("body", "edges", "branches", "cases", "default")
"""The fields of a container that stand beside `with`."""

AGENT_STATIC = frozenset({"tools", "approvals", "output", "context"})
"""What a flow says once and for all of an agent."""

Model: TypeAlias = "type[Config] | type[SetConfig]"


class InvalidConfig(SaysoError):
    """A node's `with`, once evaluated, does not fit its type; names the field."""

    code = "config_invalid"


def again(_: Mapping[str, Json]) -> OnCrash:
    """Whatever stands under `with`, it may run again after a crash."""
    return "again"


@dataclass(frozen=True)
class NodeSpec:
    """One node type. `load_config` gives the model of what it takes.

    `outputs` has the fields of `nodes.<id>` with a sentence each; None when they are the keys of `with`.
    `any_output` says that nobody knows them before it ran. `mode` says who does the work. `on_crash` gives the
    default policy for a `with`. Only types of mode `run` and `container` take `timeout`; here it is the default, in
    seconds. `unknown_output` is the output when a person says that an interrupted node is done.
    """

    name: str
    load_config: Callable[[], Model]
    outputs: Mapping[str, str] | None
    mode: Mode
    on_crash: Callable[[Mapping[str, Json]], OnCrash] = again
    timeout: float | None = None
    secret_fields: frozenset[str] = frozenset()
    verbatim_fields: frozenset[str] = frozenset()
    """Fields that are not evaluated with the others."""
    static_fields: frozenset[str] = frozenset()
    """Those of them that are read when the flow is loaded, and can have no expressions."""
    condition_fields: frozenset[str] = frozenset()
    """Those of them that are conditions, evaluated on their own."""
    sparse_fields: frozenset[str] = frozenset()
    """Fields that are recorded only where they are given: what was approved before there were any has none."""
    markup: Mapping[str, Markup] = field(default_factory=dict)
    """Fields whose text is marked up, and how: what expressions give there is made harmless."""
    node_fields: Mapping[str, str] = field(default_factory=dict)
    """Fields that name an earlier node, each with the type that this node must have."""
    unknown_output: Mapping[str, Json] = field(default_factory=dict)
    any_output: bool = False
    output: Callable[[Mapping[str, Json]], Type] | None = None
    """The type of the output for a `with`; None where it depends on more than that, or nobody knows it."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """What a container has beside `with`, of `PARTS`, with a sentence each."""
    required_parts: tuple[str, ...] = ()
    internal: bool = False
    """Whether it stands in no flow file."""

    @property
    def config(self) -> Model:
        """What stands under `with`."""
        return self.load_config()

    @property
    def doc(self) -> str:
        """What the type does, for the flow reference."""
        return (self.config.__doc__ or "").strip()

    def field_names(self) -> list[str]:
        """The fields of `with`; none for a type that takes any."""
        return [] if self.outputs is None else field_names(self.config)

    def output_fields(self, with_: Mapping[str, Json]) -> frozenset[str] | None:
        """The fields that `nodes.<id>` has for a node with this `with`; None when nobody knows."""
        if self.any_output:
            return None
        return frozenset(with_ if self.outputs is None else self.outputs)

    def output_type(self, with_: Mapping[str, Json]) -> Type:
        """The type of `nodes.<id>` for a node with this `with`, as far as it says."""
        if self.output is not None:
            return self.output(with_)
        fields = self.output_fields(with_)
        return ANY if fields is None else mapping_of(dict.fromkeys(fields, ANY))

    def check(self, with_: Mapping[str, Json]) -> list[Fault]:
        """What is wrong with a `with` as it stands in a file; what an expression will decide is left open."""
        faults = [fault for fault, given in self._read(with_)[1] if not has_expression(given)]
        faults += self.config.conflicts(with_)
        for name in with_.keys() & self.static_fields:
            if has_expression(with_[name]):
                faults.append(Fault((name,), f"`{name}` is not evaluated", "write it out"))
        for name in self.secret_fields & with_.keys():
            faults += spelled_out((name,), with_[name])
        return faults

    def misfits(self, filled: Json) -> Iterator[tuple[Fault, bool]]:
        """What is wrong with a `with` in which values stand for its expressions, each with whether any value of that
        kind would be wrong. What is only too small or too large does not count."""
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
        """The configuration from a `with` whose expressions were evaluated. Raises `InvalidConfig`."""
        config, found = self._read(evaluated)
        faults = [fault for fault, _ in found] + list(self.config.conflicts(evaluated))
        if config is None or faults:
            raise InvalidConfig("; ".join(sentence(fault) for fault in faults))
        return config

    def settle(self, evaluated: Mapping[str, Json]) -> dict[str, Json]:
        """The configuration as plain JSON, with defaults filled in: seconds, bytes, the names of the file.

        Raises `InvalidConfig`.
        """
        config = self.validate(evaluated)
        # A message has many ways to be, and few of them at once: what is not there is not recorded either.
        brief = self.name == "message"
        # What a flow says once and for all of an agent stands in its plan.
        left_out = set(AGENT_STATIC) if self.name == "agent" else None
        settled: dict[str, Json] = config.model_dump(by_alias=True, exclude_defaults=brief, exclude=left_out)
        for name in self.sparse_fields:
            if settled.get(name) is None:
                settled.pop(name, None)
        if self.name == "ask" and (choices := getattr(config, "choices", None)) is not None:
            settled["choices"] = [choice.button() for choice in choices]
        if self.mode == "prompt" and settled.get("form") is not None:
            try:
                settled["form"] = settle_form(settled["form"])
            except ValueError as error:
                raise InvalidConfig(str(error)) from error
        return settled

    def _read(self, with_: Mapping[str, Json]) -> tuple[BaseModel | None, list[tuple[Fault, Any]]]:
        """The configuration, or what keeps it from being one, each fault with the value that it is about."""
        return _read(self.config, lambda model: self._validated(with_))

    def _validated(self, with_: Mapping[str, Json]) -> BaseModel:
        """Raises `ValidationError`."""
        return self.config.model_validate(dict(with_))


def _read(
    model: Model, validate: Callable[[Model], BaseModel]
) -> tuple[BaseModel | None, list[tuple[Fault, Any]]]:
    from pydantic import ValidationError  # comes with the first model; most processes read few or none

    try:
        return validate(model), []
    except ValidationError as error:
        return None, faults_of(error, model)


def sentence(fault: Fault) -> str:
    """A fault as one sentence, with its place."""
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault.path).lstrip(".")
    text = f"{where}: {fault.message}" if where else fault.message
    return f"{text} ({fault.hint})" if fault.hint else text


def spelled_out(path: tuple[str | int, ...], value: Json) -> Iterator[Fault]:
    """References to secrets that a file spells out in place of an expression."""
    if isinstance(value, dict):
        for key, item in value.items():
            if is_marker_key(key):
                yield Fault(
                    (*path, key), f"`{key}` is not written by hand", "write {{ secrets.NAME }}", on_key=True
                )
            else:
                yield from spelled_out((*path, key), item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from spelled_out((*path, index), item)


class OwnSpec(NodeSpec):
    """A node type of an installed package. Its values are checked as JSON, so that dates and the like may be fields."""

    def settle(self, evaluated: Mapping[str, Json]) -> dict[str, Json]:
        """See `NodeSpec.settle`."""
        settled: dict[str, Json] = self.validate(evaluated).model_dump(mode="json", by_alias=True)
        return settled

    def _read(self, with_: Mapping[str, Json]) -> tuple[BaseModel | None, list[tuple[Fault, Any]]]:
        return _read(self.config, lambda model: self._validated(with_))

    def _validated(self, with_: Mapping[str, Json]) -> BaseModel:
        return self.config.model_validate_json(encode(dict(with_)))
