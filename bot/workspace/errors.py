"""Errors of the local workspace: one root, and what a caller can do about each."""

from __future__ import annotations

from typing import Any


class WorkspaceError(Exception):
    """Something the local workspace refused. `error` is a short code as Slack would name it, `text` says why."""

    def __init__(self, error: str, text: str = "") -> None:
        self.error = error
        self.text = text or error.replace("_", " ")
        super().__init__(f"{error}: {self.text}")


class SlackError(WorkspaceError):
    """A Web API refusal: becomes `{"ok": false, "error": ...}` plus `extra` fields, with HTTP status 200."""

    def __init__(self, error: str, text: str = "", **extra: Any) -> None:
        super().__init__(error, text)
        self.extra = extra

    def body(self) -> dict[str, Any]:
        """The JSON body of the answer."""
        return {"ok": False, "error": self.error, **self.extra}


class NotAcknowledged(WorkspaceError):
    """The app did not take an interaction: `operation_timeout` (no answer in time) or `dispatch_failed` (no
    socket to send it to). Slack does not deliver interactions again: the person has to try once more."""


def invalid(pointer_messages: list[str], error: str = "invalid_blocks") -> SlackError:
    """Slack's answer to arguments that break a schema: the messages name the place as a JSON pointer."""
    return SlackError(
        error,
        "; ".join(pointer_messages),
        errors=list(pointer_messages),
        response_metadata={"messages": [f"[ERROR] {message}" for message in pointer_messages]},
    )
