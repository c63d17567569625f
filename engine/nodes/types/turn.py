"""The `turn` node: one call of the model. It stands in no flow file: agents make it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from engine.nodes.types.fields import Config, Text
from engine.nodes.types.spec import NodeSpec


class TurnConfig(Config):
    """One call of the model: all that it is told."""

    purpose: Literal["answer", "compact"] = Field("answer", description="What the call is for.")
    model: Text = Field(description="The model.")
    system: str | None = Field(None, description="The system prompt.")
    max_tokens: int = Field(alias="maxTokens", description="How long the answer may be, in tokens.")
    summary: dict[str, Any] | None = Field(None, description="How the conversation is to be summed up.")
    asks: dict[str, Any] = Field(
        default_factory=dict, description="Thinking, effort, other models, the form of the answer."
    )
    cache: str = Field("5m", description="For how long what is sent again is kept by the provider.")
    user: str = Field("", description="Whom the call is for.")
    messages: list[Any] = Field(description="The conversation: `{role, content}` each.")
    tools: list[Any] = Field(default_factory=list, description="The tools: name, description, schema.")
    mcp: list[Any] = Field(
        default_factory=list, description="Servers whose tools there are: `{server, tools}`."
    )
    server_tools: dict[str, Any] = Field(
        default_factory=dict, alias="serverTools", description="Tools that run at the provider."
    )
    search: str | None = Field(
        None, description="How tools of servers are looked for, in place of being told of all."
    )
    container: str | None = Field(None, description="Where code of the model ran.")


SPEC = NodeSpec(config=TurnConfig, any_output=True, timeout=900.0, internal=True)
