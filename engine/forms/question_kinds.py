"""The kinds of questions: what is true of all questions of a kind, for those who ask, store, show and answer them. Pure.

What follows from an answer stands where it follows: in the journal in `engine.journal.events.prompts`, in a step in
`engine.decide.replies`.
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
    """A kind of questions. The defaults are those of a question about a step that cannot go on by itself."""

    icon: str
    label: str
    lead: str = "*{label}:* {whom}"
    """How its message begins, and how once nobody can answer any more."""
    closed: str = ""
    action: Literal["answer", "decide", "resolve"] = "resolve"
    """What it is called to answer it."""
    typed: bool = False
    """A choice may be typed. A decision, and what to do about a step that broke, is pressed and never typed."""
    waits: bool = True
    """Its node waits for the answer."""
    owners: bool = False
    """It is asked of whoever owns the run alone."""
    wire: tuple[str, ...] = _STEP
    """What it says on the wire, in this order, null too; with `?` only where there is any."""


KINDS = {
    "approval": QuestionKind(
        icon="🔐",
        label="Approval",
        lead="*Approval needed* from {whom}",
        closed="*Approval*, asked of {whom}",
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
    "budget": QuestionKind(icon="💰", label="At a cap", wire=(*_STEP, "scope", "excludeRequester", "caps")),
    "limit": QuestionKind(icon="🔁", label="At a limit", typed=True),
    "listing": QuestionKind(icon="🔧", label="A tool was changed", waits=False, wire=(*_STEP, "listing")),
    "outcome": QuestionKind(
        icon="🤖", label="An agent cannot go on", wire=(*_STEP, "scope", "excludeRequester")
    ),
    "elicit": QuestionKind(icon="🔌", label="A server asks", action="answer", wire=(*_STEP, "form?")),
}
"""By name."""

CALL_WIRE = (*_HEAD, "options", "acceptsText", *_DECISION, *_TIME, *_TOLD, "tool", "covers")
"""The same of an approval that is about the call of a tool."""

UNKNOWN = QuestionKind(icon="💬", label="Question", lead="*Question for* {whom}")
"""A question that another release asked: it can be shown, and nobody may answer it here."""
