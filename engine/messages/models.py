"""What models take: as their provider says, or as it was known when this release was made. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from engine.language.codec import Json

CONTEXT = 1_000_000
"""Tokens of the context of a model of which nobody knows it."""


class ModelFacts(Struct, frozen=True):
    """What one model takes. What nobody knows of is taken for granted: a refusal switches it off."""

    context: int = CONTEXT
    max_tokens: int | None = None
    """The longest answer, in tokens; None where nobody knows."""
    thinking: tuple[str, ...] = ("adaptive",)
    """Of `adaptive`, `disabled`, `between_tools`."""
    efforts: tuple[str, ...] = ("low", "medium", "high", "xhigh", "max")
    structured: bool = True
    compaction: bool = True
    web_search: bool = True
    code_execution: bool = True
    updates: bool = True
    """Text between tool calls comes as thinking, which can be shown. The models endpoint does not say it."""
    bound: bool = True
    """Thinking is bound to what stands before it. The models endpoint does not say it."""
    lifecycle: str = "active"
    retires_at: str | None = None
    known: bool = False
    """Whether the provider said it, and not this release."""


_OLD = ModelFacts(
    thinking=("disabled",), compaction=False, updates=False, bound=False, efforts=(), context=200_000
)
_PLAIN = ModelFacts(thinking=("adaptive", "disabled"), updates=False, bound=False)
_FIVE = ModelFacts()

SHIPPED: Mapping[str, ModelFacts] = {
    **dict.fromkeys(
        ("claude-fable-5-1", "claude-fable-5-2", "claude-mythos-5-1", "claude-mythos-5-2", "claude-opus-5-5"),
        _FIVE,
    ),
    **dict.fromkeys(("claude-fable-5", "claude-mythos-5"), ModelFacts(bound=False)),
    "claude-sonnet-5-5": ModelFacts(thinking=("adaptive", "between_tools")),
    "claude-haiku-5-5": ModelFacts(thinking=("adaptive", "disabled"), updates=False),
    **dict.fromkeys(
        (
            "claude-opus-5",
            "claude-sonnet-5",
            "claude-opus-4-8",
            "claude-opus-4-7",
            "claude-opus-4-6",
            "claude-sonnet-4-6",
        ),
        _PLAIN,
    ),
    **dict.fromkeys(("claude-haiku-4-5", "claude-sonnet-4-5", "claude-opus-4-5"), _OLD),
}
"""As of November 2026, for when the provider cannot be asked."""

_DATED = re.compile(r"-\d{8}$")


def shipped(model: str) -> ModelFacts:
    """What this release knows of a model; a dated id is that of its name."""
    return SHIPPED.get(model) or SHIPPED.get(_DATED.sub("", model)) or ModelFacts()


def told(model: str, info: Mapping[str, Json]) -> ModelFacts:
    """What the models endpoint says of a model, with what it does not say from this release."""
    here = shipped(model)
    can = info.get("capabilities")
    if not isinstance(can, dict):
        can = {}

    def takes(name: str, *kinds: str, otherwise: tuple[str, ...]) -> tuple[str, ...]:
        part = can.get(name)
        if not isinstance(part, dict):
            return otherwise
        inside = part.get("types") if name == "thinking" else part
        return tuple(kind for kind in kinds if _supported((inside or {}).get(kind)))

    def has(name: str, *, otherwise: bool, inside: str | None = None) -> bool:
        part = can.get(name)
        part = part.get(inside) if inside and isinstance(part, dict) else part
        return otherwise if part is None else _supported(part)

    return ModelFacts(
        context=info.get("max_input_tokens") or here.context,
        max_tokens=info.get("max_tokens") or here.max_tokens,
        thinking=takes("thinking", "adaptive", "disabled", "between_tools", otherwise=here.thinking),
        efforts=takes("effort", "low", "medium", "high", "xhigh", "max", otherwise=here.efforts),
        structured=has("structured_outputs", otherwise=here.structured),
        compaction=has("compaction", otherwise=here.compaction, inside="summarize"),
        web_search=has("server_tools", otherwise=here.web_search, inside="web_search"),
        code_execution=has("server_tools", otherwise=here.code_execution, inside="code_execution"),
        updates=here.updates,
        bound=here.bound,
        lifecycle=str(info.get("lifecycle") or "active"),
        retires_at=info.get("retires_at"),
        known=True,
    )


def _supported(told: Json) -> bool:
    return isinstance(told, dict) and bool(told.get("supported"))
