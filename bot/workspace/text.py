"""Text as people type it, and as Slack stores it.

Slack keeps `&`, `<` and `>` escaped and turns mentions and addresses into entities in angle brackets. An app
that compares a reply with what the person typed has to undo this, so the local workspace must do it too.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass

from bot.workspace.errors import WorkspaceError
from bot.workspace.state import Json, State

_TOKEN = re.compile(
    r"(?P<code>```.*?```|`[^`\n]+`)"
    r"|<@(?P<id>[UW][A-Z0-9]+)>"
    r"|(?P<url>https?://[^\s<>|`]+)"
    r"|(?P<email>(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
    r"|(?<![\w@])@(?P<name>[\w][\w.-]*)"
    r"|(?<![\w#])#(?P<channel>[a-z0-9][a-z0-9_-]*)"
    r"|(?<![\w@./-])(?P<host>(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|app)(?:/[^\s<>|`]*)?)",
    re.DOTALL,
)
_TRAILING = ".,;:!?)'\""
_BROADCASTS = ("here", "channel", "everyone")


def escape(text: str) -> str:
    """The three characters that Slack escapes in text."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def to_entities(text: str, state: State) -> str:
    """What Slack would store for `text` typed by a person of this workspace.

    `@ana`, `@sre`, `#ops`, `@here`, bare web and mail addresses become entities; `<@U…>` of somebody who
    exists is taken as a mention already made; everything else is escaped. Code is escaped, never linked.
    """
    done, position = [], 0
    for match in _TOKEN.finditer(text):
        done.append(escape(text[position : match.start()]))
        done.append(_entity(match, state))
        position = match.end()
    done.append(escape(text[position:]))
    return "".join(done)


def _entity(match: re.Match[str], state: State) -> str:
    kind, found = match.lastgroup, match.group()
    if kind == "url":
        address = found.rstrip(_TRAILING)
        return f"<{escape(address)}>{escape(found[len(address) :])}"
    if kind == "email":
        return f"<mailto:{found}|{found}>"
    if kind == "host":
        address = found.rstrip(_TRAILING)
        return f"<http://{escape(address)}|{escape(address)}>{escape(found[len(address) :])}"
    if kind == "id":
        return found if match["id"] in state.users else escape(found)
    if kind == "name":
        return _mention(match["name"], state)
    if kind == "channel":
        return _channel_link(match["channel"], state)
    return escape(found)


def _mention(typed: str, state: State) -> str:
    name = typed.rstrip(".-_")
    rest = escape(typed[len(name) :])
    for user in state.users.values():
        if user.name == name.lower() and not user.deleted:
            return f"<@{user.id}>{rest}"
    for group in state.groups.values():
        if group.handle == name.lower():
            return f"<!subteam^{group.id}>{rest}"
    return f"<!{name}>{rest}" if name in _BROADCASTS else escape("@" + typed)


def _channel_link(name: str, state: State) -> str:
    for channel in state.channels.values():
        if channel.name == name and not channel.is_im:
            return f"<#{channel.id}|{name}>"
    return escape("#" + name)


def mentions(text: str, user_id: str) -> bool:
    """Whether stored text mentions this user."""
    return f"<@{user_id}>" in text or f"<@{user_id}|" in text


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A chip above the composer of `channel` (its name or id): `label` stands on it, `text` is what a click posts,
    `hint` says more to whoever points at it."""

    channel: str
    label: str
    text: str
    hint: str = ""


def checked(suggestions: Iterable[Suggestion], state: State) -> tuple[Suggestion, ...]:
    """The suggestions, once each can be offered. Raises WorkspaceError: an unknown channel, or nothing to post."""
    offered = tuple(suggestions)
    for suggestion in offered:
        state.channel(suggestion.channel)
        if not suggestion.label.strip() or not suggestion.text.strip():
            raise WorkspaceError("no_text", f"{suggestion} needs a label and a text")
    return offered


def shown(suggestions: Iterable[Suggestion], state: State, visible: Container[str]) -> list[Json]:
    """The suggestions for these channels (ids) as the page gets them."""
    placed = [(state.channel(suggestion.channel).id, suggestion) for suggestion in suggestions]
    return [
        {"channel": channel, "label": each.label, "text": each.text, "hint": each.hint}
        for channel, each in placed
        if channel in visible
    ]
