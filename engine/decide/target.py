"""What an action is about, as far as the policy reads it: a session in its place, and a prompt of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from engine.language.codec import Json


class Asked(Protocol):
    """What the policy reads of a prompt. A `PromptState` is one."""

    @property
    def kind(self) -> str: ...
    @property
    def approvers(self) -> tuple[str, ...] | None: ...
    @property
    def who(self) -> tuple[str, ...] | None: ...
    @property
    def exclude_requester(self) -> bool: ...
    @property
    def editors(self) -> tuple[str, ...]: ...
    @property
    def excluded(self) -> tuple[str, ...]: ...
    @property
    def answered_by(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class AskedSpec:
    """The same, of a prompt's spec as the engine keeps it."""

    kind: str
    approvers: tuple[str, ...] | None = None
    who: tuple[str, ...] | None = None
    exclude_requester: bool = False
    editors: tuple[str, ...] = ()
    """Who changed what is to be approved, by id."""
    excluded: tuple[str, ...] = ()
    """Who handed the prompt over, by id."""
    answered_by: str | None = None

    @classmethod
    def of(cls, spec: Mapping[str, Json], answered_by: str | None = None) -> AskedSpec:
        """The prompt of a spec; a list that is not one of texts names nobody.

        Where it cannot be read who must not answer, nobody may.
        """
        apart = [_ids(spec.get(name)) for name in ("editors", "excluded")]
        readable = None not in apart
        return cls(
            kind=str(spec.get("kind")),
            approvers=_entries(spec.get("approvers")) if readable else (),
            who=_entries(spec.get("who")) if readable else (),
            exclude_requester=spec.get("excludeRequester") not in (None, False),
            editors=apart[0] or (),
            excluded=apart[1] or (),
            answered_by=answered_by,
        )


@dataclass(frozen=True, slots=True)
class Target:
    """What is acted on: a session in its place, and the prompt where the action is about one."""

    home_team: str | None
    """The workspace that this installation belongs to; None where there is none, and then nobody of Slack acts."""
    has_channel: bool = True
    """Whether the session lives in a Slack channel. A local run does not."""
    requester_id: str | None = None
    prompt: Asked | None = None
    admins: frozenset[str] = frozenset()
    """Entries as in `approvers`, without `channel` and `requester`."""
    allow_guests: bool = False
    allow_local: bool = False
    """Whether whoever has this machine's terminal may steer and end any session, as an admin may."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Display names by user id or e-mail, for the reasons."""
    users: frozenset[str] = frozenset()
    """Entries of those in Slack who may use the bot at all; none means everybody."""


def _entries(value: Json) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        return ()
    return tuple(entry for entry in value if isinstance(entry, str))


def _ids(value: Json) -> tuple[str, ...] | None:
    """People's ids; none where nothing is said, None where what is said cannot be read."""
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(entry, str) for entry in value):
        return None
    return tuple(value)
