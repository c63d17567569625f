"""The registry of node types: what each takes under `with`, gives as output, and what a crash means for it.

References to secrets
---------------------
In the fields that `NodeSpec.secret_fields` names (`env` of shell, `headers` of http), an expression
`{{ secrets.NAME }}` becomes a reference, and what is journaled has references only:

* `{"$secret": "NAME"}` where it is the whole text,
* `{"$secret_text": ["Bearer ", {"$secret": "NAME"}]}` where there is text around it.

The edge resolves them (`engine.nodes.secrets.Resolver`) at the last moment, in those fields and nowhere else. Data cannot
pose as a reference: in those fields evaluation refuses data with such a key (`engine.expressions`), a flow that
spells one out does not load, and in every other field the same mapping is data and stays data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from engine.codec import Json, encode
from engine.errors import SaysoError
from engine.expression_text import has_expression, is_marker_key
from engine.expressions import Markup
from engine.faults import Fault, faults_of, field_names, kind_of
from engine.forms import settle_form
from engine.nodes import entries
from engine.nodes.entries import BadNodeType

if TYPE_CHECKING:
    from pydantic import BaseModel

    from engine.nodes.configs import Config, SetConfig

OnCrash: TypeAlias = Literal["again", "ask"]

Mode: TypeAlias = Literal["pure", "prompt", "timer", "delivery", "run", "container"]
"""Who does a node's work: the core itself, people, a timer, the outbox, a runner outside the engine, or the nodes
that it holds."""

PARTS = ("body", "edges", "branches", "cases", "default")
"""The fields of a container that stand beside `with`."""

READ_ONLY_METHODS = ("GET", "HEAD", "OPTIONS")
"""HTTP methods that change nothing, so that a request may be sent again after a crash."""


Model: TypeAlias = "type[Config] | type[SetConfig]"


class InvalidConfig(SaysoError):
    """A node's `with`, once evaluated, does not fit its type; names the field."""

    code = "config_invalid"


def _again(_: Mapping[str, Json]) -> OnCrash:
    return "again"


def _ask(_: Mapping[str, Json]) -> OnCrash:
    return "ask"


def _by_method(with_: Mapping[str, Json]) -> OnCrash:
    return "again" if with_.get("method", "GET") in READ_ONLY_METHODS else "ask"


def _in(module: str, name: str) -> Callable[[], Model]:
    """A model of what a type takes. It is loaded by the first node that needs it: a flow uses a few of the types, and
    building all of them is a large part of a start."""

    def load() -> Model:
        model: Model = getattr(import_module(f"engine.nodes.{module}"), name)
        return model

    return load


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
    on_crash: Callable[[Mapping[str, Json]], OnCrash] = _again
    timeout: float | None = None
    secret_fields: frozenset[str] = frozenset()
    verbatim_fields: frozenset[str] = frozenset()
    """Fields that are not evaluated with the others."""
    static_fields: frozenset[str] = frozenset()
    """Those of them that are read when the flow is loaded, and can have no expressions."""
    condition_fields: frozenset[str] = frozenset()
    """Those of them that are conditions, evaluated on their own."""
    markup: Mapping[str, Markup] = field(default_factory=dict)
    """Fields whose text is marked up, and how: what expressions give there is made harmless."""
    node_fields: Mapping[str, str] = field(default_factory=dict)
    """Fields that name an earlier node, each with the type that this node must have."""
    unknown_output: Mapping[str, Json] = field(default_factory=dict)
    any_output: bool = False
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
        return _read(self.config, lambda model: model.model_validate(dict(with_)))


def _read(
    model: Model, validate: Callable[[Model], BaseModel]
) -> tuple[BaseModel | None, list[tuple[Fault, Any]]]:
    from pydantic import ValidationError  # comes with the first model; most processes read few or none

    try:
        return validate(model), []
    except ValidationError as error:
        return None, faults_of(error, model)


def sentence(fault: Fault) -> str:
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


_AT = "When, in UTC."
AGENT_STATIC = frozenset({"tools", "approvals", "output", "context"})
_BODY_EDGES = "The edges between these nodes, when they are a graph; see [Graphs](#graphs)."

_SPECS = (
    NodeSpec(
        "ask",
        _in("prompt_configs", "AskConfig"),
        {
            "text": "The reply as text; with choices the label of the one chosen; a form on one line.",
            "value": "The value of the choice, or of a form's only field; null for free text.",
            "values": "The fields of a form by name, null where one was left empty; an empty mapping otherwise.",
            "files": "Files that came with the reply: `{name, path, size, type}` each.",
            "by": "Who answered: `{id, name}`; null when the timeout did.",
            "at": _AT,
        },
        mode="prompt",
        markup={"message": "mrkdwn"},
    ),
    NodeSpec(
        "approval",
        _in("prompt_configs", "ApprovalConfig"),
        {
            "decision": "`approve` or `reject`.",
            "by": "Who decided: a list of `{id, name}`; empty when the timeout did.",
            "reason": "What they wrote with it, `timeout` when the timeout decided, else null.",
            "values": "The fields of a form; an empty mapping otherwise.",
            "at": _AT,
        },
        mode="prompt",
        verbatim_fields=frozenset({"covers", "editable"}),
        static_fields=frozenset({"covers", "editable"}),
        markup={"message": "mrkdwn"},
    ),
    NodeSpec(
        "message",
        _in("message_config", "MessageConfig"),
        {
            "channel": "The channel it was posted in.",
            "ts": "Slack's timestamp of the message; null for one that only one person sees.",
            "permalink": "The address of the message, where Slack gave one.",
        },
        mode="delivery",
        verbatim_fields=frozenset({"update"}),
        static_fields=frozenset({"update"}),
        unknown_output={"channel": None, "ts": None, "permalink": None},
        markup={"text": "mrkdwn", "fields": "mrkdwn", "markdown": "markdown"},
        node_fields={"update": "message"},
    ),
    NodeSpec(
        "shell",
        _in("configs", "ShellConfig"),
        {
            "stdout": "What the program wrote, up to `max_output`.",
            "stderr": "What it wrote to its error output, up to `max_output`.",
            "exit_code": "Its exit code; null when a person said that the interrupted node is done.",
            "seconds": "How long it ran.",
        },
        mode="run",
        on_crash=_ask,
        secret_fields=frozenset({"env"}),
        verbatim_fields=frozenset({"script"}),
        unknown_output={"stdout": "", "stderr": "", "exit_code": None, "seconds": None},
    ),
    NodeSpec(
        "http",
        _in("configs", "HttpConfig"),
        {
            "status": "The status; null when a person said that the interrupted node is done.",
            "headers": "The headers of the answer, names in small letters.",
            "body": "The answer as text.",
            "json": "The answer as JSON when it is JSON, else null.",
        },
        mode="run",
        on_crash=_by_method,
        timeout=30.0,
        secret_fields=frozenset({"headers"}),
        unknown_output={"status": None, "headers": {}, "body": "", "json": None},
    ),
    NodeSpec(
        "python",
        _in("container_configs", "PythonConfig"),
        {},
        mode="run",
        on_crash=_ask,
        verbatim_fields=frozenset({"call"}),
        static_fields=frozenset({"call"}),
        any_output=True,
    ),
    NodeSpec("set", _in("configs", "SetConfig"), None, mode="pure"),
    NodeSpec(
        "wait",
        _in("configs", "WaitConfig"),
        {"until": "The moment until which it waited, in UTC."},
        mode="timer",
    ),
    NodeSpec(
        "foreach",
        _in("container_configs", "ForeachConfig"),
        {
            "iterations": "A list of `{index, item, outputs}`, one for each item in the order of the items; `outputs` "
            "has the outputs of the body's nodes by id."
        },
        mode="container",
        verbatim_fields=frozenset({"as"}),
        static_fields=frozenset({"as"}),
        parts={"body": "The nodes that run for each item.", "edges": _BODY_EDGES},
        required_parts=("body",),
    ),
    NodeSpec(
        "loop",
        _in("container_configs", "LoopConfig"),
        {
            "iterations": "A list of `{index, item, outputs}`, one for each round; `item` is null, `outputs` has the "
            "outputs of the body's nodes by id."
        },
        mode="container",
        verbatim_fields=frozenset({"while", "until"}),
        condition_fields=frozenset({"while", "until"}),
        parts={"body": "The nodes that run in each round.", "edges": _BODY_EDGES},
        required_parts=("body",),
    ),
    NodeSpec(
        "parallel",
        _in("container_configs", "ParallelConfig"),
        {
            "branches": "By name of the branch the outputs of its nodes by id; null for a node that was skipped, "
            "failed, or was not reached."
        },
        mode="container",
        parts={"branches": "Names, each with a list of nodes."},
        required_parts=("branches",),
    ),
    NodeSpec(
        "switch",
        _in("container_configs", "SwitchConfig"),
        {
            "case": "The case that was taken, as text; null when it was `default` or none.",
            "outputs": "The outputs of its nodes by id; empty when none was taken.",
        },
        mode="container",
        parts={
            "cases": "Values, each with a list of nodes.",
            "default": "The nodes that run when no case fits.",
        },
        required_parts=("cases",),
    ),
    NodeSpec(
        "flow",
        _in("container_configs", "FlowConfig"),
        {"outputs": "The outputs of the called flow's nodes by id."},
        mode="container",
        verbatim_fields=frozenset({"flow"}),
        static_fields=frozenset({"flow"}),
    ),
    NodeSpec(
        "agent",
        _in("agent_config", "AgentConfig"),
        {
            "text": "What it said last.",
            "data": "The answer as JSON that fits `output`; null where there is no `output`.",
            "turns": "How many model calls there were.",
            "usage": "The tokens of all its calls, by kind.",
            "cost": "What they cost, in dollars.",
        },
        mode="container",
        verbatim_fields=AGENT_STATIC,
        static_fields=AGENT_STATIC,
    ),
    NodeSpec("fail", _in("configs", "FailConfig"), {}, mode="pure"),
    NodeSpec("noop", _in("configs", "NoopConfig"), {}, mode="pure"),
)


def _internal(
    name: str, model: str, timeout: float, on_crash: Callable[[Mapping[str, Json]], OnCrash]
) -> NodeSpec:
    load = _in("agent_config", model)
    return NodeSpec(
        name, load, {}, mode="run", on_crash=on_crash, timeout=timeout, any_output=True, internal=True
    )


_INTERNAL = (
    _internal("turn", "TurnConfig", 900.0, _again),
    _internal("mcp", "McpConfig", 300.0, _ask),
    _internal("read_file", "ReadFileConfig", 60.0, _again),
    _internal("write_file", "WriteFileConfig", 60.0, _again),
)
"""What conversations are made of. The registry knows them by name and lists them nowhere."""


class OwnSpec(NodeSpec):
    """A node type of an installed package. Its values are checked as JSON, so that dates and the like may be fields."""

    def settle(self, evaluated: Mapping[str, Json]) -> dict[str, Json]:
        """See `NodeSpec.settle`."""
        settled: dict[str, Json] = self.validate(evaluated).model_dump(mode="json", by_alias=True)
        return settled

    def _read(self, with_: Mapping[str, Json]) -> tuple[BaseModel | None, list[tuple[Fault, Any]]]:
        return _read(self.config, lambda model: model.model_validate_json(encode(dict(with_))))


def _own_spec(name: str) -> NodeSpec:
    """Raises `KeyError` and `BadNodeType`."""
    kind = entries.own_type(name)
    on_crash = _again if kind.on_crash == "again" else _ask
    return OwnSpec(
        name,
        lambda: kind.config,
        {} if kind.outputs is None else kind.outputs,
        mode="run",
        on_crash=on_crash,
        timeout=kind.timeout,
        secret_fields=kind.secret_fields,
        unknown_output=kind.unknown_output,
        any_output=kind.outputs is None,
    )


class _Registry(Mapping[str, NodeSpec]):
    """sayso's own types, and those of installed packages, which are looked for only when they are needed."""

    def __init__(self, specs: Mapping[str, NodeSpec], internal: Mapping[str, NodeSpec]) -> None:
        self._specs = specs
        self._internal = internal

    def __getitem__(self, name: str) -> NodeSpec:
        spec = self._specs.get(name) or self._internal.get(name)
        if spec is not None:
            return spec
        try:
            return _own_spec(name)
        except BadNodeType as error:
            raise KeyError(name) from error

    def __iter__(self) -> Iterator[str]:
        yield from self._specs
        for name in entries.names():
            if name not in self._specs and name not in self._internal and unusable_type(name) is None:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)


_REGISTRY: Mapping[str, NodeSpec] = _Registry(
    {spec.name: spec for spec in _SPECS}, {spec.name: spec for spec in _INTERNAL}
)


def node_types() -> Mapping[str, NodeSpec]:
    """All node types by name, in the order of the flow reference, then those of installed packages.

    Internal types are found by name, and are not listed.
    """
    return _REGISTRY


def unusable_type(name: str) -> str | None:
    """Why the type of that name of an installed package cannot be used; None when it can, or when there is none."""
    try:
        entries.own_type(name)
    except KeyError:
        return None
    except BadNodeType as error:
        return str(error)
    return None


# --- secrets at the edge ---------------------------------------------------------------------------------


def secret_names(value: Json) -> frozenset[str]:
    """The names of the secrets that an evaluated `env` or `headers` refers to."""
    names: list[str] = []

    def note(name: str) -> str:
        names.append(name)
        return ""

    _resolve(value, note)
    return frozenset(names)


def _resolve(value: Json, lookup: Callable[[str], str]) -> Json:
    if isinstance(value, list):
        return [_resolve(item, lookup) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"$secret"} and isinstance(value["$secret"], str):
        return lookup(value["$secret"])
    if value.keys() == {"$secret_text"} and isinstance(value["$secret_text"], list):
        return "".join(_text_part(part, lookup) for part in value["$secret_text"])
    return {key: _resolve(item, lookup) for key, item in value.items()}


def _text_part(part: Json, lookup: Callable[[str], str]) -> str:
    resolved = part if isinstance(part, str) else _resolve(part, lookup)
    if not isinstance(resolved, str):
        raise InvalidConfig(f"a text with a secret has a part that is {kind_of(resolved)}")
    return resolved
