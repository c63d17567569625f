"""The entries of an agent's `tools` and `approvals` in a flow's raw data: what they name, before anybody checked them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from engine.flow.checks.raw_lists import as_list, as_mapping, talks, walk
from engine.flow.node import ToolKind
from engine.language.codec import Json

ASKS_PEOPLE: frozenset[ToolKind] = frozenset({"ask_human"})
"""The tools whose work is done by people."""


class Entry(NamedTuple):
    """One entry of `tools`: a name, and the settings where it has any."""

    name: str
    settings: Mapping[str, Json] | None = None


def entry_of(item: Any) -> Entry:
    """What an entry says; an empty name where it is neither text nor a mapping of one name."""
    if isinstance(item, str):
        return Entry(item)
    if isinstance(item, dict) and len(item) == 1:
        ((name, settings),) = item.items()
        return Entry(name, as_mapping(settings))
    return Entry("")


def tool_names(entry: Entry) -> list[str]:
    """What the model calls the tools that an entry gives, as far as that is known."""
    settings = entry.settings or {}
    if entry.name == "mcp":
        tools = [tool for tool in as_list(settings.get("tools")) if isinstance(tool, str)]
        return [f"{settings.get('server')}__{tool}" for tool in tools]
    name, call = settings.get("name"), settings.get("call")
    if isinstance(name, str) and name:
        return [name]
    if entry.name == "python":
        return [call.rpartition(":")[2]] if isinstance(call, str) else []
    return [entry.name]


def named_rules(written: Json) -> list[Json]:
    """The rules that stand under one name in `approvals`: a list of verdicts is short for one with these verdicts."""
    if not isinstance(written, list):
        return [written]
    return written if any(isinstance(item, dict) for item in written) else [{"verdicts": written}]


def agents(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All agents of a flow, as written."""
    for _, node in walk(data):
        if talks(node):
            yield node


def entries(node: Mapping[str, Any]) -> list[Entry]:
    """The tools of an agent, as written."""
    return [entry_of(item) for item in as_list(as_mapping(node.get("with")).get("tools"))]
