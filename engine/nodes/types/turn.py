"""The `turn` node: one call of the model. It is in no flow file: agents make it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from engine.nodes.types.fields import Config, Text
from engine.nodes.types.spec import NodeSpec


class TurnConfig(Config):
    """One call of the model: all that it is told."""

    purpose: Literal["answer", "compact"] = "answer"
    """Purpose of the call."""
    model: Text
    """The model."""
    system: str | None = None
    """The system prompt."""
    max_tokens: int = Field(alias="maxTokens")
    """Longest answer, in tokens."""
    summary: dict[str, Any] | None = None
    """Instructions for a summary of the conversation."""
    asks: dict[str, Any] = Field(default_factory=dict)
    """Thinking, effort, other models, the form of the answer."""
    cache: str = "5m"
    """For how long what is sent again is kept by the provider."""
    user: str = ""
    """The person whom the call is for."""
    messages: list[Any]
    """The conversation: `{role, content}` each."""
    tools: list[Any] = Field(default_factory=list)
    """The tools: name, description, schema."""
    mcp: list[Any] = Field(default_factory=list)
    """Servers whose tools there are: `{server, tools}`."""
    server_tools: dict[str, Any] = Field(default_factory=dict, alias="serverTools")
    """Tools that run at the provider."""
    search: str | None = None
    """Search for tools of servers, instead of being told of all."""
    container: str | None = None
    """Container in which code of the model ran."""


SPEC = NodeSpec(config=TurnConfig, any_output=True, timeout=900.0, internal=True)
