"""What an action is about, as far as the policy reads it: a session in its place, and a prompt of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.forms.question import Question


@dataclass(frozen=True, slots=True)
class Target:
    """What is acted on: a session in its place, and the prompt where the action is about one."""

    home_team: str | None
    """The workspace that this installation belongs to; None where there is none, and then nobody of Slack acts."""
    has_channel: bool = True
    """Whether the session lives in a Slack channel. A local run does not."""
    requester_id: str | None = None
    prompt: Question | None = None
    admins: frozenset[str] = frozenset()
    """Entries as in `approvers`, without `channel` and `requester`."""
    allow_guests: bool = False
    allow_local: bool = False
    """Whether whoever has this machine's terminal may steer and end any session, as an admin may."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Display names by user id or e-mail, for the reasons."""
    users: frozenset[str] = frozenset()
    """Entries of those in Slack who may use the bot at all; none means everybody."""
