"""The registry of node types: what each takes under `with`, gives as output, and what a crash means for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module

from engine.language.codec import Json
from engine.nodes.types import installed, outputs
from engine.nodes.types.installed import BadNodeType
from engine.nodes.types.spec import AGENT_STATIC, Model, NodeSpec, OnCrash, OwnSpec, again

READ_ONLY_METHODS = ("GET", "HEAD", "OPTIONS")
"""HTTP methods that change nothing, so that a request may be sent again after a crash."""


def _ask(_: Mapping[str, Json]) -> OnCrash:
    return "ask"


def _by_method(with_: Mapping[str, Json]) -> OnCrash:
    return "again" if with_.get("method", "GET") in READ_ONLY_METHODS else "ask"


def _in(module: str, name: str) -> Callable[[], Model]:
    """A model of what a type takes. It is loaded by the first node that needs it: a flow uses a few of the types, and
    building all of them is a large part of a start."""

    @cache
    def load() -> Model:
        model: Model = getattr(import_module(f"engine.nodes.types.{module}"), name)
        return model

    return load


_AT = "When, in UTC."
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
            "by": "Who answered: `{id, name, email}`, null where unknown; null when the timeout did.",
            "at": _AT,
        },
        output=outputs.ask,
        mode="prompt",
        markup={"message": "mrkdwn"},
    ),
    NodeSpec(
        "approval",
        _in("prompt_configs", "ApprovalConfig"),
        {
            "decision": "`approve`, or with `on_reject: continue` also `reject`.",
            "by": "Who decided: a list of `{id, name, email}`; empty when the timeout did.",
            "reason": "What they wrote with it, `timeout` when the timeout decided, else null.",
            "values": "The fields of a form; an empty mapping otherwise.",
            "at": _AT,
        },
        output=outputs.approval,
        mode="prompt",
        verbatim_fields=frozenset({"covers", "editable", "on_reject"}),
        static_fields=frozenset({"covers", "editable", "on_reject"}),
        markup={"message": "mrkdwn"},
    ),
    NodeSpec(
        "message",
        _in("message", "MessageConfig"),
        {
            "channel": "The channel it was posted in.",
            "ts": "Slack's timestamp of the message; null for one that only one person sees.",
            "permalink": "The address of the message, where Slack gave one.",
        },
        output=outputs.message,
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
        output=outputs.shell,
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
        output=outputs.http,
        mode="run",
        on_crash=_by_method,
        timeout=30.0,
        secret_fields=frozenset({"url", "query", "headers", "body", "json"}),
        verbatim_fields=frozenset({"schema"}),
        static_fields=frozenset({"schema"}),
        sparse_fields=frozenset({"schema"}),
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
        output=outputs.wait,
        mode="timer",
    ),
    NodeSpec(
        "foreach",
        _in("container_configs", "ForeachConfig"),
        {
            "iterations": "A list of `{index, item, outputs}`, one for each item in the order of the items; `outputs` "
            "has the outputs of the body's nodes by id.",
            "collected": "With `collect`: what each round contributed, a list in the order of the items.",
        },
        mode="container",
        verbatim_fields=frozenset({"as", "collect"}),
        sparse_fields=frozenset({"collect"}),
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
        _in("agent", "AgentConfig"),
        {
            "text": "What it said last.",
            "data": "The answer as JSON that fits `output`; null where there is no `output`.",
            "turns": "How many model calls there were.",
            "usage": "The tokens of all its calls, by kind.",
            "cost": "What they cost, in dollars.",
        },
        output=outputs.agent,
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
    load = _in("agent", model)
    return NodeSpec(
        name, load, {}, mode="run", on_crash=on_crash, timeout=timeout, any_output=True, internal=True
    )


_INTERNAL = (
    _internal("turn", "TurnConfig", 900.0, again),
    _internal("mcp", "McpConfig", 300.0, _ask),
    _internal("read_file", "ReadFileConfig", 60.0, again),
    _internal("write_file", "WriteFileConfig", 60.0, again),
)
"""What conversations are made of. The registry knows them by name and lists them nowhere."""


def _own_spec(name: str) -> NodeSpec:
    """Raises `KeyError` and `BadNodeType`."""
    kind = installed.own_type(name)
    on_crash = again if kind.on_crash == "again" else _ask
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
        for name in installed.names():
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


_MODES = {spec.name: spec.mode for spec in _SPECS}


def mode_of(name: str) -> str:
    """The mode of a type, whether it is installed or not: all types but sayso's own are run by a process."""
    return _MODES.get(name, "run")


def unusable_type(name: str) -> str | None:
    """Why the type of that name of an installed package cannot be used; None when it can, or when there is none."""
    try:
        installed.own_type(name)
    except KeyError:
        return None
    except BadNodeType as error:
        return str(error)
    return None
