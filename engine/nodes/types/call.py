"""The `call` node: a call of a tool that an agent outside of sayso wants to make. The gate makes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from pydantic import Field

from engine.language.codec import Json
from engine.language.credentials import without_credentials
from engine.nodes.types.fields import Config, Text
from engine.nodes.types.preview import as_json, block, quoted, seen
from engine.nodes.types.spec import NodeSpec

MOST_SHOWN = 250_000
"""Characters that people can read of a call: all of it, where it is not a larger than agents send."""
_LINE = 60
"""JSON that is longer has a line for each value."""
_COMPARED = 400
"""Lines of a change that are compared; of a longer one all of the old ones are above all of the new ones."""
_CHANGE = ("old_string", "new_string")


class CallConfig(Config):
    """One call of a tool that an agent outside of sayso wants to make."""

    tool: Text
    """The tool, by the agent's name for it."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """The input of the tool."""


def _arguments(given: Mapping[str, Json]) -> Iterator[str]:
    """Each argument behind its name. What replaces a text is there as a diff, in the place of both texts."""
    change = _change_of(given)
    for name, value in given.items():
        if change and name in _CHANGE:
            if name == _CHANGE[0]:
                yield "old text (-) and new text (+):"
                yield from _diff(*change)
        elif isinstance(value, str):
            yield from block(quoted(name), without_credentials(value))
        elif isinstance(value, list) and value and all(_change_of(one) for one in value):
            for number, one in enumerate(value, 1):
                yield f"{quoted(name)}, {number} of {len(value)}:"
                yield from (f"    {line}" for line in _arguments(one))
        else:
            yield from _json(quoted(name), value)


def _json(name: str, value: Json) -> Iterator[str]:
    line = without_credentials(as_json(value))
    if len(line) <= _LINE:
        yield f"{name}: {line}"
        return
    yield f"{name}:"
    text = without_credentials(json.dumps(value, indent=2, ensure_ascii=False))
    yield from (f"    {seen(part)}" for part in text.split("\n"))


def _change_of(given: Json) -> tuple[str, str] | None:
    """The old and the new text of arguments that replace a text."""
    if not isinstance(given, dict):
        return None
    old, new = (given.get(name) for name in _CHANGE)
    return (old, new) if isinstance(old, str) and isinstance(new, str) else None


def _diff(old: str, new: str) -> Iterator[str]:
    before, after = (without_credentials(text).split("\n") for text in (old, new))
    if len(before) + len(after) > _COMPARED:
        yield from _marked("-", before)
        yield from _marked("+", after)
        return
    for kind, start, end, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from _marked(" ", before[start:end])
        else:
            yield from _marked("-", before[start:end])
            yield from _marked("+", after[first:last])


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    return (f"    {mark} {seen(line)}" for line in lines)


SPEC = NodeSpec(
    config=CallConfig,
    outputs={"tool": "The tool that may be called.", "arguments": "The arguments that were approved."},
    preview=lambda config: [quoted(config["tool"]), *_arguments(config.get("arguments") or {})],
    previewed=frozenset({"tool", "arguments"}),
    most_shown=MOST_SHOWN,
)
