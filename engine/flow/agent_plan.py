"""What a flow file says about an agent, read and found sound: its tools and who approves which of their calls. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from engine.language.codec import Json
from engine.language.expressions import Compiled

if TYPE_CHECKING:
    from engine.flow.model import Node

ToolKind: TypeAlias = Literal[
    "ask_human", "shell", "http", "read_file", "write_file", "python", "mcp", "node", "flow"
]
"""How a call becomes a node: the built-in tools by name, a function, a tool of an MCP server, or a node or flow that
the file describes under `tools`."""

Verdict: TypeAlias = Literal["approve", "edit", "reject"]


@dataclass(frozen=True)
class ToolPlan:
    """One tool of an agent.

    `name` is what the model calls it (of an MCP server `<server>__<tool>`), `input_schema` the JSON Schema of what it
    takes; None where an MCP server says it. `node` does the work: it stands in the agent's list of tools. `settings`
    are the tool's own: allow-lists, who is asked.
    """

    name: str
    kind: ToolKind
    description: str
    input_schema: Json
    node: Node
    settings: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Rule:
    """Which calls of a tool people decide first. `when` sees `tool` and `input`; without it, every call.

    `approvers` are entries as in an approval; None: the requester, or the channel where there is none. `timeout` is in
    seconds; a call that nobody decided in time is rejected.
    """

    tool: str
    verdicts: tuple[Verdict, ...] = ("approve", "reject")
    when: Compiled | None = None
    approvers: tuple[str, ...] | None = None
    required: int = 1
    exclude_requester: bool = False
    timeout: float | None = None
    message: str | None = None


@dataclass(frozen=True)
class AgentPlan:
    """What an agent may do beside talking.

    `output` is the JSON Schema of its last answer, `context` the ids of earlier agents whose conversations it gets,
    `keeps` whether a later one gets this one's.
    """

    tools: tuple[ToolPlan, ...] = ()
    rules: tuple[Rule, ...] = ()
    output: Json = None
    context: tuple[str, ...] = ()
    keeps: bool = False

    def tool(self, name: str) -> ToolPlan | None:
        """The tool that the model means by this name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def under(self, prefix: str) -> AgentPlan:
        """The same plan in a flow that calls the agent's flow."""
        return replace(self, tools=tuple(replace(tool, node=tool.node.under(prefix)) for tool in self.tools))


def plan_of(node: Node) -> AgentPlan:
    """What an agent may do; nothing beside talking for one whose file says nothing."""
    return node.agent or AgentPlan()
