"""What opens a view, what was submitted, and what is answered to it. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from engine.language.codec import Json

View: TypeAlias = dict[str, Any]
"""A view as Slack takes it: a modal, or the app's Home."""

VIEW = "slack.view"
"""Kind of the inbox rows that submissions become."""
PAGE = "slack.page"
"""Kind of the inbox rows that the pages of a form become, all but the last."""

OPEN, INSIDE = "sayso:open:", "sayso:inside:"
"""Buttons that open a view of the kind that follows; and elements that change the view they stand in."""
CALLBACK = "sayso:"


@dataclass(frozen=True, slots=True)
class Opening:
    """Somebody asked for a view. The trigger lives for three seconds."""

    kind: str
    team: str
    user: str
    trigger_id: str
    value: str = ""
    """What the button carries: ids."""
    channel: str | None = None
    """None where there is none: on the app's Home, and for global shortcuts."""
    thread_ts: str | None = None
    within: Literal["message", "modal", "home", "command", "shortcut"] = "message"
    data: dict[str, Json] = field(default_factory=dict)
    """More, by the way in: what a slash command said, the message of a shortcut."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A modal as it was submitted; with `action` something in it was pressed or chosen, and it stays open."""

    kind: str
    team: str
    user: str
    view_id: str
    meta: dict[str, Json]
    """The `private_metadata` that we gave the view."""
    view: View
    values: dict[str, Any]
    """Slack's `state.values`: by block, by element."""
    action: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """The key of what was submitted, spent once it is taken."""
        return f"view:{self.team}:{self.view_id}"

    def first_input(self) -> str | None:
        """The block of the first input: where a refusal of the whole is shown."""
        blocks = [block for block in self.view.get("blocks") or () if block.get("type") == "input"]
        return next((str(block["block_id"]) for block in blocks if block.get("block_id")), None)


# --- answers to an opening ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Show:
    """This view is opened."""

    view: View


@dataclass(frozen=True, slots=True)
class Words:
    """Nothing is opened; the person who asked reads why. No mrkdwn."""

    text: str


Opened: TypeAlias = Show | Words


# --- answers to a submission -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Errors:
    """Nothing is taken: what is wrong, by the `block_id` of the input at which it is shown."""

    errors: dict[str, str]


@dataclass(frozen=True, slots=True)
class Refuse:
    """Nothing is taken, whatever is filled in: the reason, shown in the view."""

    reason: str


@dataclass(frozen=True, slots=True)
class Next:
    """The view becomes another one; with `keep`, this much of it is stored first, under a key made of its content."""

    view: View
    keep: dict[str, Json] | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Accept:
    """Taken: stored under the view's key, then acknowledged, then carried out by the kind's `submit`. `user`, `team`
    and `kind` are added to `data`. `channel` and `threadTs` in it say where its author is told what becomes of it."""

    data: dict[str, Json]
    thread_key: str | None = None


Verdict: TypeAlias = Errors | Refuse | Next | Accept
