"""Texts of the first edition, as sessions pinned them: what they left out meant something else. Pure.

In the first edition a rejected approval completed. Where such a text is read again, that is spelled out in its data, so
that one engine runs both.
"""

from __future__ import annotations

from typing import Any

from engine.flow.outline import walk


def spell_out(data: dict[str, Any]) -> None:
    """Write into a sound text of the first edition what it means."""
    for _, node in walk(data):
        if node.get("type") == "approval":
            node["with"].setdefault("on_reject", "continue")
