"""What is done with what arrives from Slack, as values, and the kinds of inbox rows that become of it.

`Take` is persisted under its key before the acknowledgement; `Ask` is answered in the acknowledgement itself and
persists nothing; `Press` opens a view and persists nothing; `Submit` is checked, and persisted if it is right; `Skip`
is acknowledged and forgotten. A key is spent only by what is taken, so a message that
comes twice in two shapes (`message` and `app_mention`) is taken once, whichever comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from bot.inbound.view_values import Opening, Submission
from engine.journal.records import InboxItem
from engine.language.codec import Json

MESSAGE, CLICK, SLASH, ROOTED = "slack.message", "slack.click", "slack.slash", "slack.rooted"
OVERHEARD, REACTION = "slack.overheard", "slack.reaction"
MALFORMED = "malformed"
"""Why something is skipped that has other types than Slack documents."""
CHANNEL, DELETED, EDITED, SHARED = "slack.channel", "slack.deleted", "slack.edited", "slack.shared"


@dataclass(frozen=True, slots=True)
class Home:
    """The installation that payloads must belong to."""

    team_id: str
    app_id: str | None
    bot_user_id: str

    def is_foreign(self, team: Any, app: Any) -> bool:
        """Whether a payload is of another team, or of another app."""
        return team != self.team_id or (self.app_id is not None and app is not None and app != self.app_id)


class Hears(Protocol):
    """What the served flows listen for, as far as it decides whether something is taken."""

    def hears(self, event: Mapping[str, Any]) -> bool: ...
    def reactions(self, name: str) -> Iterator[object]: ...


class Deaf:
    """Listens for nothing."""

    def hears(self, event: Mapping[str, Any]) -> bool:
        """Nothing."""
        return False

    def reactions(self, name: str) -> Iterator[object]:
        """None."""
        return iter(())


DEAF = Deaf()


@dataclass(frozen=True, slots=True)
class Take:
    """Persist, then acknowledge. With `only_known_threads` the thread must have a session. `instead` is a view that
    may be opened in place of it."""

    item: InboxItem
    only_known_threads: bool = False
    instead: Opening | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A slash command that is answered at once: `word` is `list`, `status`, `help`, or not a known one."""

    word: str
    rest: str
    data: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Press:
    """Acknowledge, and open a view at once."""

    opening: Opening


@dataclass(frozen=True, slots=True)
class Submit:
    """A modal was submitted, or something in it was pressed: check it; what is taken is persisted."""

    submission: Submission


@dataclass(frozen=True, slots=True)
class Skip:
    """Acknowledge and forget; `reason` is counted, `detail` logged."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Renamed:
    """A channel got another id: noted before the acknowledgement."""

    old: str
    new: str
    ts: str


Decision: TypeAlias = Take | Ask | Press | Submit | Renamed | Skip


_LONGEST = 100_000


def storable(text: str) -> str:
    """Text that can be encoded. Far beyond what may be an answer it is cut: it will be refused as too long."""
    return text[:_LONGEST].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
