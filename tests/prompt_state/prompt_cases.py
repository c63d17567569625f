"""Values that the tables of these tests are made of."""

from __future__ import annotations

from typing import Any

from engine.language.actors import Actor
from prompt_state.question_row import PromptState

TEAM = "T1"
KEY = "T1:C1:1000.000000"


def ask(prompt_id: str = "p-ask", **changed: Any) -> PromptState:
    """A text question that is shown since ts 1001."""
    values: dict[str, Any] = {
        "prompt_id": prompt_id,
        "session_id": "session-1",
        "path": prompt_id.removeprefix("p-"),
        "node_id": prompt_id.removeprefix("p-"),
        "kind": "ask",
        "status": "shown",
        "message": "How does it look?",
        "nonce": "n1",
        "accepts_text": True,
        "requester_id": "UANA",
        "requester_name": "Ana",
        "thread_key": KEY,
        "channel": "C1",
        "thread_ts": "1000.000000",
        "message_ts": "1001.000000",
    }
    return PromptState(**(values | changed))


def approval(prompt_id: str = "p-gate", **changed: Any) -> PromptState:
    """An approval that is shown since ts 1001."""
    options = (
        {"value": "approve", "label": "Approve", "style": "primary"},
        {"value": "reject", "label": "Reject", "style": "danger"},
    )
    values: dict[str, Any] = {
        "kind": "approval",
        "accepts_text": False,
        "options": options,
        "approvers": ("UBEN",),
    }
    return ask(prompt_id, **(values | changed))


def person(user: str = "UANA", **changed: Any) -> Actor:
    """A member of the team and of the channel, of whom everything is known."""
    values: dict[str, Any] = {
        "id": user,
        "kind": "slack",
        "team_id": TEAM,
        "in_channel": True,
        "facts_known": True,
    }
    return Actor(**(values | changed))
