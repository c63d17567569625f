"""One runtime node of a flow, and the plan of an agent. Nodes and plans refer to each other: an agent's tools are
nodes."""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal, Self, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from engine.language.codec import Json, encode
from engine.language.expressions import Compiled
from engine.nodes.types.registry import spec_of
from engine.nodes.types.spec import NodeSpec, OnCrash

ROOT = ""
"""The id of the list that a flow begins with."""

Gate: TypeAlias = Literal["any", "all"]


class Retry(Struct, frozen=True, omit_defaults=True):
    """Reaction to a failure: at most `attempts` tries in all, with waits in seconds between them."""

    attempts: int
    backoff: Literal["fixed", "exponential"] = "fixed"
    delay: float = 1.0
    max_delay: float = 300.0
    jitter: float = 0.0
    until_deadline: bool = False
    """True if failures of the other side are retried until the deadline (`engine.decide.outages`)."""

    def wait(self, failures: int, chance: float) -> float:
        """Seconds to wait after so many failures (1 or more); `chance`, from 0 to 1, says where in the jitter."""
        seconds = self.delay
        if self.backoff == "exponential":
            # More doublings than these pass every longest wait, and a float.
            seconds *= 2.0 ** min(failures - 1, 64)
        return min(seconds, self.max_delay) * (1 + self.jitter * (2 * chance - 1))


class Node(Struct, frozen=True, omit_defaults=True, dict=True):
    """One node. `config` is its `with` as written, `compiled` the same ready to evaluate, `condition` its `if`.

    `index` is its place in the list `list_id`. `lists` are the ids of the lists that it holds: `body` of a foreach or
    loop, the branches of a parallel by name, the cases of a switch by value with `default` under the empty key.
    `on_failure` is the id of that list, `as_` the name of a foreach's item, `calls` the name of the flow that it calls,
    `while_` and `until_` the conditions of a loop.

    `timeout` is in seconds, `on_crash` is None if the file leaves it to the type, `secrets` are the names of the
    secrets that it refers to, `line` is its line in the file.
    """

    id: str
    type: str
    name: str
    index: int
    config: Mapping[str, Json]
    compiled: Compiled
    condition: Compiled | None = None
    timeout: float | None = None
    on_crash: OnCrash | None = None
    on_error: str = "fail"
    secrets: frozenset[str] = frozenset()
    line: int = 1
    list_id: str = ROOT
    lists: Mapping[str, str] = field(default_factory=dict)
    retry: Retry | None = None
    on_failure: str | None = None
    as_: str | None = None
    calls: str | None = None
    collect: Compiled | None = None
    """Contribution of each pass of a `foreach`."""
    while_: Compiled | None = None
    until_: Compiled | None = None
    agent: "AgentPlan | None" = None
    """Tools and further settings of an agent."""
    settled: Mapping[str, Json] | None = None
    """Checked `with` with defaults, if no expression decides it."""

    @cached_property
    def spec(self) -> NodeSpec:
        """Return the spec of the node's type."""
        return spec_of(self.type)

    @cached_property
    def constant(self) -> bytes | None:
        """Return `settled` as JSON: each start decodes a copy of its own."""
        return None if self.settled is None else encode(self.settled)

    @property
    def goto(self) -> str | None:
        """The id of the node, in the same list, that a failure goes to."""
        return self.on_error.removeprefix("goto:") if self.on_error.startswith("goto:") else None

    def crash_policy(self, evaluated: Json) -> OnCrash:
        """Return whether an interruption of this node, given its evaluated `with`, runs it again or asks a person."""
        if self.on_crash is not None:
            return self.on_crash
        return self.spec.on_crash(evaluated if isinstance(evaluated, dict) else {})

    @property
    def covers(self) -> str | None:
        """Return the id of the node, in the same list, that runs only if this approval approved its exact action."""
        return self.config.get("covers") if self.type == "approval" else None

    @property
    def if_(self) -> Json:
        """The condition as written; None without one."""
        return None if self.condition is None else self.condition.raw

    def under(self, prefix: str) -> Self:
        """The same node in the lists of a flow that calls its flow."""
        return replace(
            self,
            list_id=prefix + self.list_id,
            lists={key: prefix + list_id for key, list_id in self.lists.items()},
            on_failure=None if self.on_failure is None else prefix + self.on_failure,
            agent=None if self.agent is None else self.agent.under(prefix),
        )


ToolKind: TypeAlias = Literal[
    "ask_human",
    "plan",
    "shell",
    "http",
    "read_file",
    "write_file",
    "python",
    "mcp",
    "node",
    "flow",
    "remember",
]
"""Origin of a tool: the built-in tools by name, a function, a tool of an MCP server, or a node or flow that the file
describes under `tools`."""


Verdict: TypeAlias = Literal["approve", "edit", "reject", "answer"]


class ToolPlan(Struct, frozen=True, omit_defaults=True):
    """One tool of an agent.

    `name` is the model's name for it (for an MCP server `<server>__<tool>`), `input_schema` the JSON Schema of its
    input, or None if an MCP server supplies it. `node` does the work and is in the agent's list of tools. `settings`
    are the tool's own: allow-lists, the people to ask.
    """

    name: str
    kind: ToolKind
    description: str
    input_schema: Json
    node: Node
    settings: Mapping[str, Json] = field(default_factory=dict)


class Rule(Struct, frozen=True, omit_defaults=True):
    """Rule for calls of a tool that people decide first. `when` sees `tool` and `input`; without it, every call.

    `approvers` are entries as in an approval; None: the requester, or the channel without one. `clocks` are `timeout`,
    `on_timeout`, `remind_every`, `escalate` and `hours` as an approval has them, in seconds.
    """

    tool: str
    verdicts: tuple[Verdict, ...] = ("approve", "reject")
    when: Compiled | None = None
    approvers: tuple[str, ...] | None = None
    required: int = 1
    exclude_requester: bool = False
    require_reason: bool = False
    clocks: Mapping[str, Json] = field(default_factory=lambda: {"on_timeout": "reject"})
    message: str | None = None


class Memory(Struct, frozen=True, omit_defaults=True):
    """Notes that outlive a run: their readers, the seconds for which they are kept, and whether people approve each."""

    scope: Literal["channel", "flow"]
    keep: float
    approved: bool


class AgentPlan(Struct, frozen=True, omit_defaults=True):
    """Capabilities of an agent beside talking.

    `output` is the JSON Schema of its last answer, `context` the ids of earlier agents whose conversations it gets,
    `keeps` is True if a later one gets this one's.
    """

    tools: tuple[ToolPlan, ...] = ()
    rules: tuple[Rule, ...] = ()
    output: Json = None
    context: tuple[str, ...] = ()
    keeps: bool = False
    grants: Literal["off", "run", "flow"] = "off"
    """Widest scope in which a person can allow calls like the approved one."""
    memory: Memory | None = None

    def tool(self, name: str) -> ToolPlan | None:
        """The tool that the model means by this name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def under(self, prefix: str) -> Self:
        """The same plan in a flow that calls the agent's flow."""
        return replace(self, tools=tuple(replace(tool, node=tool.node.under(prefix)) for tool in self.tools))


def plan_of(node: Node) -> AgentPlan:
    """Return the plan of an agent; without one in its file, an empty plan."""
    return node.agent or AgentPlan()
