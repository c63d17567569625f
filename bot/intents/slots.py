"""Slots: what a session shows that only changes, each one row of kind `show` that is replaced. The key of a row begins with its
slot."""

from __future__ import annotations

SHOW = "show"
"""Kind of the rows that are slots."""
CARD = "card"
QUESTION = "prompt"
"""A question, or several that share a message."""
SPEECH = "agent"
"""A part of what an agent says in a turn, or its tool calls, plan or note."""
CALL = "agentTool"
"""The result of a tool call, which stands with the calls of its turn."""
