"""Capabilities of models: as their provider reports them, or as known when this release was made. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from engine.language.codec import Json

CONTEXT = 1_000_000
"""Assumed context of an unknown model, in tokens."""


class ModelFacts(Struct, frozen=True):
    """Capabilities of one model. Unknown ones are assumed: a refusal switches them off."""

    context: int = CONTEXT
    max_tokens: int | None = None
    """Longest answer in tokens; None if unknown."""
    thinking: tuple[str, ...] = ("adaptive",)
    """Supported modes out of `adaptive`, `disabled`, `between_tools`."""
    efforts: tuple[str, ...] = ("low", "medium", "high", "xhigh", "max")
    structured: bool = True
    compaction: bool = True
    web_search: bool = True
    code_execution: bool = True
    updates: bool = True
    """Text between tool calls comes as thinking, which can be shown. The models endpoint does not say it."""
    bound: bool = True
    """True if thinking is bound to what precedes it. The models endpoint does not report it."""
    lifecycle: str = "active"
    retires_at: str | None = None
    known: bool = False
    """True if the provider reported these facts."""


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
"""Facts as of November 2026, used if the provider cannot be asked."""

_DATED = re.compile(r"-\d{8}$")


def shipped(model: str) -> ModelFacts:
    """Return this release's facts about a model; a dated id has those of its name."""
    return SHIPPED.get(model) or SHIPPED.get(_DATED.sub("", model)) or ModelFacts()


def told(model: str, info: Mapping[str, Json]) -> ModelFacts:
    """Return the facts from the models endpoint, completed by those of this release."""
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
