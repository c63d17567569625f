"""Slots: what a session shows that only changes, each one row of kind `show` that is replaced."""

from __future__ import annotations

SHOW = "show"
"""Kind of the rows that are slots; the `slot` of their payload is one of those below."""
CARD = "card"
QUESTION = "question"
"""A question, or several that share a message."""
SPEECH = "turn"
"""A part of what an agent says in a turn, or its tool calls, plan or note."""
CALL = "call"
"""The result of a tool call, which stands with the calls of its turn."""
