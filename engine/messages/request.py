"""Options of a request beside the conversation: thinking, effort, the form of the answer; and the API's features that
may be refused. Pure.

A feature is on if its field is in the body. Names of betas change: one that the API refuses is switched off by removing
its field, and the agent continues without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from engine.language.codec import Json
from engine.messages.answer_form import form_of
from engine.messages.models import ModelFacts
from engine.messages.turns import Tool


class Feature(NamedTuple):
    """An optional feature of the API."""

    name: str
    path: tuple[str, ...]
    """Its field in the body."""
    beta: str | None = None
    """Name of the beta for the request header."""
    words: tuple[str, ...] = ()
    """Words in a refusal that identify it, beside the name of the beta."""
    value: Json = None
    """Required value of the field; None: any."""

    def stands_in(self, body: Json) -> bool:
        """True if the request asks for it."""
        for name in self.path:
            if not isinstance(body, dict) or name not in body:
                return False
            body = body[name]
        return self.value in (None, body)


FEATURES = (
    Feature(
        "updates",
        ("thinking", "display"),
        "thinking-display-updates-2026-08-18",
        ("thinking.display", "thinking.adaptive.display"),
        "updates",
    ),
    Feature(
        "binding", ("thinking", "block_binding"), "thinking-binding-controls-2026-08-01", ("block_binding",)
    ),
    Feature("fallbacks", ("fallbacks",), "server-side-fallback-2026-07-01", ("fallback",)),
    Feature("compaction", ("compaction",), "compact-2026-09-04"),
    Feature("effort", ("output_config", "effort"), None, ("effort",)),
    Feature(
        "format",
        ("output_config", "format"),
        None,
        ("schema is too complex", "compiled grammar is too large", "output_format", "structured output"),
    ),
    Feature("thinking", ("thinking",), None, ("adaptive thinking", "thinking.type")),
)
"""All features; names of betas, fields and words of refusals are defined only here."""

COMPACTION = "compaction"
"""Type of the block that replaces what it summarizes, too."""


def betas(body: Mapping[str, Json]) -> list[str]:
    """The betas that this request needs."""
    asked = [feature for feature in FEATURES if feature.beta and feature.stands_in(body)]
    found = [str(feature.beta) for feature in asked if feature.name != COMPACTION]
    # True if it asks for a summary, or continues from one.
    first = (body.get("messages") or [{}])[0].get("content")
    summed = isinstance(first, list) and any(block.get("type") == COMPACTION for block in first)
    compacts = COMPACTION in body or summed
    if compacts:
        found += [str(feature.beta) for feature in FEATURES if feature.name == COMPACTION]
    return found


def refused(body: Mapping[str, Json], message: str) -> Feature | None:
    """Return the feature of this request that a refusal with this message is about, or None."""
    told = message.lower()
    for feature in FEATURES:
        signs = [*feature.words, *([feature.beta] if feature.beta else [])]
        if feature.name != COMPACTION and feature.stands_in(body) and any(sign in told for sign in signs):
            return feature
    return None


def without(body: Mapping[str, Json], off: Iterable[Feature]) -> dict[str, Json]:
    """The request without these features."""
    left = dict(body)
    for feature in off:
        left = _less(left, feature.path)
    return left


def _less(body: Mapping[str, Json], path: tuple[str, ...]) -> dict[str, Json]:
    name, *rest = path
    if name not in body:
        return dict(body)
    if not rest:
        return {key: value for key, value in body.items() if key != name}
    inner = _less(body[name], tuple(rest)) if isinstance(body[name], dict) else body[name]
    kept = {**body, name: inner}
    return kept if inner else {key: value for key, value in kept.items() if key != name}


# --- settings of an agent --------------------------------------------------------------------------------------


def settings_for(asked: Mapping[str, Json], model: ModelFacts) -> dict[str, Json]:
    """Return the fields of the body for an agent's settings: `{thinking: auto|off, effort, fallbacks, format}`, as far
    as the model supports them."""
    found: dict[str, Json] = {}
    thinking = _thinking(asked.get("thinking") or "auto", model)
    if thinking is not None:
        found["thinking"] = thinking
    output: dict[str, Json] = {}
    if asked.get("effort") in model.efforts:
        output["effort"] = asked["effort"]
    form = form_of(asked.get("format")) if model.structured else None
    if form is not None:
        output["format"] = {"type": "json_schema", "schema": form}
    if output:
        found["output_config"] = output
    if asked.get("fallbacks"):
        found["fallbacks"] = [{"model": name} for name in asked["fallbacks"]]
    return found


_WEB = {"web_search": "web_search_20260318", "web_fetch": "web_fetch_20260318"}
FETCHED = 25_000
"""Tokens of a page that is read at most."""


def server_tools(asked: Mapping[str, Json], model: ModelFacts) -> list[Tool]:
    """The tools that run at the provider, of those that an agent names, as far as its model can use them."""
    made = []
    for name, kind in _WEB.items():
        if asked.get(name) and model.web_search:
            web = asked[name]
            more: dict[str, Json] = {"type": kind, "max_uses": web["max_uses"]}
            if "*" not in web["domains"]:
                more["allowed_domains"] = web["domains"]
            if name == "web_fetch":
                more |= {"max_content_tokens": FETCHED, "citations": {"enabled": True}}
            made.append(Tool(name, "", None, more))
    if asked.get("code_execution") is not None and model.code_execution:
        made.append(Tool("code_execution", "", None, {"type": "code_execution_20260521"}))
    return made


def looked_for(tools: Sequence[Tool], how: str) -> list[Tool]:
    """Return these tools, which the model sees only after a search, and the search tool."""
    name = f"tool_search_tool_{how}"
    deferred = [replace(tool, more={**tool.more, "defer_loading": True}) for tool in tools]
    return [Tool(name, "", None, {"type": f"{name}_20251119"}), *deferred]


def is_about_search(refusal: str) -> bool:
    """True if a refusal is about looking for tools."""
    return any(word in refusal.lower() for word in ("tool_search", "tool search", "defer_loading"))


def _thinking(wanted: str, model: ModelFacts) -> Json:
    """Return the thinking setting. On some models the text between tool calls comes as thinking: they are asked to show
    it without reasoning. None: the model's default."""
    if wanted == "off":
        for kind in ("disabled", "between_tools"):
            if kind in model.thinking:
                return {"type": kind}
    if "adaptive" not in model.thinking:
        return None
    told: dict[str, Json] = {"type": "adaptive", "display": "updates" if model.updates else "omitted"}
    if model.bound:
        told["block_binding"] = {"prefix_mismatch_behavior": "error"}
    return told
