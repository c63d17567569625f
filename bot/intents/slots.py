"""Slots: what only changes of what the bot shows, each one row of kind `show` that is replaced. Its key begins with the slot."""

from __future__ import annotations

SHOW = "show"
"""Kind of the rows that are slots."""
CARD = "card"
QUESTION = "prompt"
"""A question, or several that share a message."""
SPEECH = "agent"
"""A part of what an agent says in a turn, or its tool calls, plan or note."""
ALIKE = "alike"
"""Number of messages that came like the one that began a thread."""
