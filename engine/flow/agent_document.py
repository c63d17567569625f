"""Shape of an agent's tools and approvals in a flow file.

An agent lists its tools: names, or a mapping of one name with settings. `TOOLS` has the models of the settings of the
built-in ones; `ToolDoc` is a tool that the file makes from a node or another flow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema

from engine.flow.builtin_tools import RESOURCES, pattern_problem
from engine.flow.input_document import InputDoc
from engine.flow.node import ToolKind, Verdict
from engine.language.codec import Json
from engine.language.diagnostics import Fault, kind_of
from engine.nodes.types.addresses import is_host
from engine.nodes.types.fields import (
    Callable_,
    Config,
    Duration,
    Marked,
    Person,
    Query,
    Scalar,
    Size,
    Text,
    check_env,
    check_headers,
    text_like,
)
from engine.nodes.types.prompts import Escalate, RemindEvery, Timeout, WorkingHours, clock_conflicts, too_few
from engine.nodes.types.registry import END
from engine.nodes.types.spec import NodeSpec

TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*", re.ASCII)
"""Allowed names of tools, with at most `MAX_NAME` characters."""
SERVER = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]|_(?!_))*", re.ASCII)
"""Allowed names of MCP servers: `__` separates a server's name from that of its tool."""


def _host(value: Any) -> str:
    if not isinstance(value, str) or not is_host(value):
        raise ValueError(
            f"{kind_of(value)} is not a host name: write it without https:// and without a path, such as "
            "grafana.internal"
        )
    return value


def _pattern(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a command such as `kubectl get *`, not {kind_of(value)}")
    problem = pattern_problem(value)
    if problem is not None:
        raise ValueError(problem)
    return value


Host: TypeAlias = Annotated[str, BeforeValidator(_host), WithJsonSchema({"type": "string", "title": "host"})]
Server: TypeAlias = Annotated[
    str,
    text_like(SERVER, "expected the name of an MCP server such as `grafana`, not {}"),
    WithJsonSchema({"type": "string", "pattern": f"^{SERVER.pattern}$"}),
]
Pattern: TypeAlias = Annotated[
    str, BeforeValidator(_pattern), WithJsonSchema({"type": "string", "minLength": 1, "title": "pattern"})
]
Crash: TypeAlias = Literal["again", "ask"]
Method: TypeAlias = Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]

_NAME = "The model's name for it, if the agent has several of this kind. Default: `{0}`."
_DESCRIPTION = "An addition to the description that the model gets."
_ON_CRASH = "What to do if the bot died while it ran, like `on_crash` of a node."
_TIMEOUT = "How long a call may take."


class ToolSettings(Config):
    """The settings of a built-in tool. The class says how its calls become nodes."""

    node_type: ClassVar[str]
    evaluated: ClassVar[frozenset[str]] = frozenset()
    """The settings in which expressions may stand, and secrets too, but for those of `ask_human`."""
    given: ClassVar[frozenset[str]] = frozenset()
    """The settings that are in the `with` of every call, as they are written."""
    example: ClassVar[str] = ""
    """Example with the required settings, if any."""

    def shared(self, name: str) -> dict[str, Json]:
        """Return the fields shared by the `with` of every call of a tool of this name."""
        return {}


class AskHumanTool(ToolSettings):
    """The model asks people in free text, with choices, or with a form. The result is the answer with its author, or
    that nobody answered in time."""

    node_type = "ask"
    evaluated = given = frozenset({"who", "timeout", "remind_every", "escalate", "hours"})

    who: Annotated[list[Person], Field(min_length=1)] | None = None
    """The people who may answer. Default: the requester, or anyone in the channel if there is none."""
    timeout: Timeout = None
    remind_every: RemindEvery = None
    escalate: Escalate = None
    hours: WorkingHours = None

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Its clocks go together."""
        yield from clock_conflicts(raw)


class PlanTool(ToolSettings):
    """The model lists the steps of its work and ticks them off: a checklist that people see in the thread."""

    node_type = "set"

    def shared(self, name: str) -> dict[str, Json]:
        """Tell the model that people see it."""
        return {"shown": True}


class ShellTool(ToolSettings):
    """The model runs programs in the run's folder, only those in `commands`, without a shell."""

    node_type = "shell"
    evaluated = frozenset({"env"})
    given = frozenset({"env", "max_output"})
    example = 'write shell: {commands: ["kubectl get *"]}, or ["*"] for anything'

    commands: Annotated[list[Pattern], Field(min_length=1)]
    """The allowed commands, compared word by word: `"kubectl get *"` is that program with these arguments and any
    after them, `tail` that program with any, `"systemctl status nginx"` exactly this, `["*"]` anything."""
    name: Text | None = Field(None, description=_NAME.format("shell"))
    description: Text | None = Field(None, description=_DESCRIPTION)
    env: dict[str, Scalar] = Field(default_factory=dict)
    """Environment variables, like `env` of `shell`; they can contain secrets."""
    timeout: Duration = Field(600.0, description=_TIMEOUT)
    max_output: Size | None = None
    """The part of a program's output that is kept, as in `shell`."""
    on_crash: Crash = Field("ask", description=_ON_CRASH)

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Environment variables have sound names."""
        yield from check_env(raw)


class HttpTool(ToolSettings):
    """The model sends HTTP requests to the listed hosts. It never sees `headers` and `query`."""

    node_type = "http"
    evaluated = frozenset({"headers", "query"})
    given = frozenset({"headers", "query", "max_body"})
    example = "write http: {hosts: [grafana.internal]}"

    hosts: Annotated[list[Host], Field(min_length=1)]
    """The hosts it may reach: `grafana.internal`, `*.example.com`, with a port unless it is the default."""
    methods: Annotated[list[Method], Field(min_length=1)] = ["GET"]
    """The methods it may use."""
    name: Text | None = Field(None, description=_NAME.format("http"))
    description: Text | None = Field(None, description=_DESCRIPTION)
    headers: dict[str, Scalar] = Field(default_factory=dict)
    """Headers for every request, like `headers` of `http`; they can contain secrets."""
    query: dict[str, Query] = Field(default_factory=dict)
    """Query parameters for every request, like `query` of `http`; they can contain secrets."""
    timeout: Duration = Field(30.0, description=_TIMEOUT)
    max_body: Size | None = None
    """The largest response body, as in `http`."""
    on_crash: Crash | None = Field(
        None, description=_ON_CRASH + " Default: `again` for `GET`, `HEAD` and `OPTIONS`, else `ask`."
    )

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Headers have sound names."""
        yield from check_headers(raw)


class ReadFileTool(ToolSettings):
    """The model reads text files in the run's folder."""

    node_type = "read_file"


class WriteFileTool(ToolSettings):
    """The model writes text files in the run's folder."""

    node_type = "write_file"


class PythonTool(ToolSettings):
    """The model calls your Python function."""

    node_type = "python"
    example = 'write python: {call: "package.module:function"}'

    call: Callable_
    """`module:function`, as `call` of `python`."""
    name: Text | None = None
    """The model's name for it. Default: the function's name."""
    description: Text | None = None
    """Its purpose. Default: the function's docstring."""
    input: dict[str, InputDoc] | None = None
    """Its inputs, by name, like a flow's `inputs`. Default: from its type hints."""
    timeout: Duration = Field(600.0, description=_TIMEOUT)
    on_crash: Crash = Field("ask", description=_ON_CRASH)

    def shared(self, name: str) -> dict[str, Json]:
        """The function."""
        return {"call": self.call}


class McpTool(ToolSettings):
    """The model uses tools of an MCP server (`<server>__<tool>`) and reads its resources (`<server>__resources`,
    `<server>__resource`)."""

    node_type = "mcp"
    example = "write mcp: {server: grafana, tools: [query]}"

    server: Server
    """The configured name of the server."""
    tools: list[Text] = []
    """The server's tools that the model may use."""
    resources: list[Text] = []
    """Patterns of resource addresses that the model may read; `*` matches anything: `docs://runbooks/*`."""
    timeout: Duration = Field(300.0, description=_TIMEOUT)
    on_crash: Crash = Field("ask", description=_ON_CRASH)

    def shared(self, name: str) -> dict[str, Json]:
        """Return the server with its own name for the tool, or the readable resources."""
        tool = name.removeprefix(f"{self.server}__")
        reads = tool in RESOURCES and tool not in self.tools
        return {"server": self.server, "tool": tool, **({"resources": self.resources} if reads else {})}

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """It gives something."""
        if not raw.get("tools") and not raw.get("resources"):
            yield Fault(
                (), "list the `tools` that may be used, or the `resources` that may be read", cls.example
            )


TOOLS: Mapping[ToolKind, type[ToolSettings]] = {
    "ask_human": AskHumanTool,
    "plan": PlanTool,
    "shell": ShellTool,
    "http": HttpTool,
    "read_file": ReadFileTool,
    "write_file": WriteFileTool,
    "python": PythonTool,
    "mcp": McpTool,
}
"""The settings of the built-in tools, by the name that is in a file."""


class ToolDoc(Config):
    """A tool made of a node or of another flow."""

    description: Text | None = None
    """Its purpose: all that the model knows of it. Default for a flow: its `description`."""
    input: dict[str, InputDoc] | None = None
    """Its inputs, by name, like the flow's `inputs`; use them as `{{ input.<name> }}` under `with`. Not for a flow,
    which has its own inputs."""
    type: Text
    """The type of the node: one with effects, `set`, or `flow`."""
    with_: dict[str, Any] | None = Field(None, alias="with")
    """The configuration, by type."""
    timeout: Duration | None = Field(None, description=_TIMEOUT)
    on_crash: Crash | None = Field(None, description=_ON_CRASH)


def usable_as_tool(spec: NodeSpec) -> bool:
    """True if agents can call nodes of this type."""
    return spec.calls or (spec.mode in ("run", "pure") and not spec.internal and spec.name != END)


def _verdicts(value: Any) -> Any:
    if isinstance(value, list) and all(item in get_args(Verdict) for item in value):
        for item in value:
            if value.count(item) > 1:
                raise ValueError(f"`{item}` appears twice")
        for needed in ("approve", "reject"):
            if needed not in value:
                raise ValueError(f"`{needed}` is missing: people must be able to approve and to reject")
    return value


class RuleDoc(Config):
    """Calls of a tool that people decide first, and the people who may."""

    when: Any = None
    """A condition in `{{ }}` with `input` (the model's input for the tool) and `tool` (its name). Default: every
    call."""
    verdicts: Annotated[list[Verdict], BeforeValidator(_verdicts)] = ["approve", "reject"]
    """The possible decisions: `approve`, `reject`, `edit` to change the tool's input, and `answer` to enter the
    result instead, without running the tool."""
    approvers: Annotated[list[Person], Field(min_length=1)] | None = None
    """The people who may decide, like `approvers` of `approval`. Default: the requester, or anyone in the channel if there is
    none."""
    required: Annotated[int, Field(ge=1, le=50)] = 1
    """The number of different people who must approve."""
    exclude_requester: bool = False
    """The requester may not decide."""
    require_reason: bool = False
    """A rejection needs a reason, which the model is told."""
    timeout: Timeout = None
    on_timeout: Literal["reject", "approve"] = "reject"
    """After the timeout: the call is rejected, or it counts as approved."""
    remind_every: RemindEvery = None
    escalate: Escalate = None
    hours: WorkingHours = None
    message: Marked | None = None
    """The text above the call."""

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Check the clocks, and that somebody is left who may decide."""
        yield from clock_conflicts(raw)
        alone = raw.get("approvers") in (None, ["requester"])
        if alone and raw.get("exclude_requester") is True:
            hint = "name others under `approvers`"
            yield Fault(("exclude_requester",), "nobody is left to decide", hint, on_key=True)
        if raw.get("approvers") is None and isinstance(raw.get("required"), int) and raw["required"] > 1:
            yield Fault(
                ("required",), "several people must approve, but no approvers are named", "write `approvers`"
            )
        yield from too_few(raw)
