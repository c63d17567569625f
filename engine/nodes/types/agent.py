"""What may stand under `with:` of an `agent`, and what the parts of a conversation are made of.

The types `turn`, `mcp`, `read_file` and `write_file` stand in no flow file: agents make them, one for each call.
Tools and approvals of an agent are in `engine.flow.agent_document`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from engine.language.codec import Json
from engine.language.diagnostics import kind_of
from engine.nodes.types.configs import Config, Text
from engine.nodes.types.prompt_configs import NodeId

MAX_TOKENS = 8192
"""How long an answer may be, in tokens, where the flow does not say."""
MAX_TURNS = 50
"""How many model calls an agent makes, where the flow does not say."""


def _file(value: Any) -> str | dict[str, Json]:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, dict) and isinstance(value.get("path"), str):
        return value
    raise ValueError(f"expected a file of an `ask`, or a name in the session's folder, not {kind_of(value)}")


AgentFile: TypeAlias = Annotated[
    Any, BeforeValidator(_file), WithJsonSchema({"type": ["string", "object"], "title": "file"})
]
"""A file that the model is shown: an entry of `files` of an `ask`, or a name in the session's folder."""


class AgentConfig(Config):
    """Lets Claude work on a task, with tools, until it is done.

    Each model call and each tool call is a step of its own that is never made twice. People can be asked, decide which
    calls may run (`approvals`), write to it while it works, and stop it. `tools`, `approvals`, `output` and `context`
    are read when the flow is loaded.
    """

    prompt: Text = Field(description="The task.")
    system: str | None = Field(None, description="Who Claude is here and what it has to keep to.")
    model: Text | None = Field(None, description="The model. Left out: the one that is configured.")
    max_tokens: Annotated[int, Field(ge=1)] = Field(
        MAX_TOKENS, description="How long one answer of the model may be, in tokens."
    )
    temperature: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="How much the answers vary, from 0 to 1. Left out: the model's default."
    )
    max_turns: Annotated[int, Field(ge=1)] = Field(
        MAX_TURNS, description="How many model calls there may be; then a person is asked."
    )
    max_cost: Annotated[float, Field(gt=0)] | None = Field(
        None, description="How many dollars it may cost; a person is asked before it costs more."
    )
    max_tokens_total: Annotated[int, Field(ge=1)] | None = Field(
        None, description="How many tokens all its calls may take together; then a person is asked."
    )
    context: list[NodeId] = Field(
        default_factory=list, description="The ids of earlier agents whose conversations it is given."
    )
    files: list[AgentFile] | None = Field(
        None,
        description="Files and images that it is shown: those of an `ask` (`{{ nodes.<id>.files }}`), or names in the "
        "session's folder.",
    )
    output: dict[str, Any] | None = Field(
        None,
        description="A JSON Schema that the answer must fit; it is `data` of the output. What does not fit is asked for "
        "once more.",
    )
    tools: list[Any] = Field(
        default_factory=list, description="What it can use; see [Tools](#tools-of-an-agent)."
    )
    approvals: dict[str, Any] = Field(
        default_factory=dict,
        description="By name of a tool which of its calls people decide first; see "
        "[Approvals of tool calls](#approvals-of-tool-calls).",
    )


class TurnConfig(Config):
    """One call of the model: all that it is told."""

    purpose: Literal["answer", "compact"] = Field("answer", description="What the call is for.")
    model: Text = Field(description="The model.")
    system: str | None = Field(None, description="The system prompt.")
    max_tokens: int = Field(alias="maxTokens", description="How long the answer may be, in tokens.")
    temperature: float | None = Field(None, description="How much answers vary.")
    messages: list[Any] = Field(description="The conversation: `{role, content}` each.")
    tools: list[Any] = Field(default_factory=list, description="The tools: name, description, schema.")
    mcp: list[Any] = Field(
        default_factory=list, description="Servers whose tools there are: `{server, tools}`."
    )
    room: int | None = Field(None, description="Tokens that are set aside for files and such tools.")
    weighed: list[str] = Field(default_factory=list, description="Marks of those that were counted before.")


class McpConfig(Config):
    """One call of a tool of an MCP server."""

    server: Text = Field(description="The server, by the name that it is configured under.")
    tool: Text = Field(description="The tool, by the server's name for it.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="What the tool is given.")


class ReadFileConfig(Config):
    """Reads a picture, or some lines of a text file, in the session's folder."""

    path: Text = Field(description="The file, relative to the session's folder.")
    first_line: Annotated[int, Field(ge=1)] = Field(1, description="The line to begin with.")
    lines: Annotated[int, Field(ge=1)] | None = Field(None, description="How many lines at most.")


class WriteFileConfig(Config):
    """Writes a text file in the session's folder."""

    path: Text = Field(description="The file, relative to the session's folder.")
    content: str = Field(description="The whole text of the file.")
