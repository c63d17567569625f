"""Texts of the first edition, as sessions pinned them: what they left out meant something else. Pure.

In the first edition a rejected approval completed, and so did a flow whose loop edge was used up. Where such a text is read
again, that is spelled out in its data, so that one engine runs both. What no field can say (a graph of which no final node
ran) is asked of `Flow.edition`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.flow.checks.raw_lists import as_list, spec_at, walk


def spell_out(data: dict[str, Any]) -> None:
    """Write into a sound text of the first edition what it means."""
    _spell_out_edges(data)
    for _, node in walk(data):
        _spell_out_edges(node)
        spec = spec_at(node)
        if spec is not None and "on_reject" in spec.static_fields:
            node["with"].setdefault("on_reject", "continue")


def _spell_out_edges(holder: Mapping[str, Any]) -> None:
    for edge in as_list(holder.get("edges")):
        if edge.get("type") == "loop":
            edge.setdefault("on_limit", "continue")
