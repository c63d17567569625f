"""Kinds of questions: the rules shared by all questions of a kind, for code that asks, stores, shows and answers them.
Pure.

The effects of an answer are in `engine.journal.events.prompts` for the journal and in `engine.decide.replies` for a
step.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

_HEAD = ("kind", "message", "nodeId", "nodeName")
_TIME = ("timeoutSeconds", "onTimeout")
_TOLD = ("remindSeconds?", "escalate?", "hours?")
_CLOCKS = (*_TIME, *_TOLD, "options", "acceptsText")
_DECISION = (
    "approvers",
    "excludeRequester",
    "required",
    "veto",
    "requireReason",
    "editable",
    "form",
    "values",
)
_FILES = ("acceptsFiles?", "maxFiles?", "maxSize?")
_STEP = (*_HEAD, "options", "acceptsText", "who", *_TIME, "attempt?")


class QuestionKind(Struct, frozen=True, kw_only=True):
    """A kind of questions. The defaults are those of a question about a step that cannot continue by itself."""

    icon: str
    label: str
    lead: str = "*{label}:* {whom}"
    """Beginning of its message, and of the closed message."""
    closed: str = ""
    action: Literal["answer", "decide", "resolve"] = "resolve"
    """Name of the action that answers it."""
    typed: bool = False
    """True if a choice may be typed. A decision, or a choice about a broken step, takes a click."""
    waits: bool = True
    """Its node waits for the answer."""
    owners: bool = False
    """True if only the owners of the run are asked."""
    wire: tuple[str, ...] = _STEP
    """Fields on the wire, in this order, null included; those with `?` only if they are set."""


KINDS = {
    "approval": QuestionKind(
        icon="🔐",
        label="Approval",
        lead="*Approval needed* from {whom}",
        closed="*Approval* requested from {whom}",
        action="decide",
        wire=(*_HEAD, *_CLOCKS, *_DECISION, "covers"),
    ),
    "ask": QuestionKind(
        icon="💬",
        label="Question",
        lead="*Question for* {whom}",
        action="answer",
        typed=True,
        wire=(*_HEAD, *_CLOCKS, "form?", *_FILES, "who", "default", "covers"),
    ),
    "input": QuestionKind(
        icon="💬",
        label="Input",
        lead="*Input needed* from {whom}",
        closed="*Input* from {whom}",
        action="answer",
        typed=True,
        wire=(*_HEAD, "form?", "options", "acceptsText", "who", *_TIME, "input"),
    ),
    "interrupted": QuestionKind(icon="⚠️", label="Please check", owners=True),
    "failed": QuestionKind(icon="❌", label="A step failed", owners=True),
    "budget": QuestionKind(
        icon="💰", label="Cap reached", wire=(*_STEP, "scope", "excludeRequester", "caps")
    ),
    "limit": QuestionKind(icon="🔁", label="Limit reached", typed=True),
    "listing": QuestionKind(icon="🔧", label="A tool changed", waits=False, wire=(*_STEP, "listing")),
    "outcome": QuestionKind(
        icon="🤖", label="The agent is stuck", wire=(*_STEP, "scope", "excludeRequester")
    ),
    "elicit": QuestionKind(icon="🔌", label="A server needs input", action="answer", wire=(*_STEP, "form?")),
}
"""Kinds by name."""

CALL_WIRE = (*_HEAD, "options", "acceptsText", *_DECISION, *_TIME, *_TOLD, "tool", "covers")
"""The same of an approval that is about the call of a tool."""

UNKNOWN = QuestionKind(icon="💬", label="Question", lead="*Question for* {whom}")
"""Kind of a question from another release: it can be shown, but not answered here."""
