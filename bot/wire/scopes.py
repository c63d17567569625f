"""Which rights the app needs, and what does not work without each. The manifest is checked against this table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from engine.flow import Flow

ALWAYS: dict[str, str] = {
    "chat:write": "posting anything at all",
    "app_mentions:read": "starting flows by mention",
    "channels:history": "reading replies in public channels",
    "groups:history": "reading replies in private channels",
    "im:history": "reading direct messages",
    "im:read": "finding direct messages that came while the bot was down",
    "commands": "the /sayso command",
    "channels:read": "finding the public channels it is in, and who is in them",
    "groups:read": "finding the private channels it is in, and who is in them",
    "users:read": "finding out who somebody is: without it nobody can answer or approve",
    "users:read.email": "approvers given by e-mail address",
    "usergroups:read": "approvers given as @group",
    "im:write": "messages to one person (`to: dm:...`)",
    "files:write": "files of messages, and what is too long for one",
    "reactions:write": "marking what was taken or refused",
}
"""Bot scope → what will not work without it, whatever the flows are."""

ALWAYS_EVENTS = (
    "app_mention",
    "message.channels",
    "message.groups",
    "message.im",
    "app_home_opened",
    "channel_archive",
    "channel_unarchive",
    "group_archive",
    "group_unarchive",
    "member_joined_channel",
    "member_left_channel",
    "channel_shared",
    "channel_id_changed",
)
"""Bot events that every manifest subscribes to."""


@dataclass(frozen=True)
class Feature:
    """What only some flows need: scopes as in `ALWAYS`, events, and whether a flow is one of those."""

    name: str
    scopes: Mapping[str, str]
    events: tuple[str, ...]
    used: Callable[[Flow], bool]


def _reacts(flow: Flow) -> bool:
    return any(trigger.kind == "reaction" for trigger in flow.triggers)


def _takes_files(flow: Flow) -> bool:
    nodes = (node for nodes in flow.lists.values() for node in nodes.nodes)
    return any(
        node.spec.mode == "prompt" and "files" in str(node.config.get("accept") or "") for node in nodes
    )


def has_shortcut(flow: Flow) -> bool:
    """Whether a flow is started by the message shortcut."""
    return any(trigger.kind == "shortcut" for trigger in flow.triggers)


FEATURES = (
    Feature(
        "reactions",
        {"reactions:read": "flows that start by a reaction"},
        ("reaction_added",),
        _reacts,
    ),
    Feature("files", {"files:read": "files that people drop into a thread as an answer"}, (), _takes_files),
)

NEEDED: dict[str, str] = {**ALWAYS, **{k: v for feature in FEATURES for k, v in feature.scopes.items()}}
"""All scopes that any flow may need."""

EVENTS = (*ALWAYS_EVENTS, *(event for feature in FEATURES for event in feature.events))
"""All events that any flow may need."""


def in_use(flows: Iterable[Flow]) -> list[Feature]:
    """The features that these flows need."""
    known = list(flows)
    return [feature for feature in FEATURES if any(map(feature.used, known))]


def needed_by(flows: Iterable[Flow]) -> dict[str, str]:
    """The scopes that these flows need."""
    return {**ALWAYS, **{k: v for feature in in_use(flows) for k, v in feature.scopes.items()}}


def events_for(flows: Iterable[Flow]) -> tuple[str, ...]:
    """The events that these flows need."""
    return (*ALWAYS_EVENTS, *(event for feature in in_use(flows) for event in feature.events))


_READING = ("channels:history", "groups:history", "im:history")


@dataclass(frozen=True)
class Report:
    """What is missing. `fatal`: nothing would work (posting, or reading any thread). `known` is false where the
    server does not say which scopes there are."""

    known: bool
    missing: tuple[str, ...]
    fatal: bool

    def text(self) -> str:
        """What will not work, a line each, and what to do."""
        if not self.missing:
            return (
                "All scopes are granted."
                if self.known
                else "The server does not say which scopes are granted."
            )
        lines = [f"  {scope}: needed for {NEEDED[scope]}" for scope in self.missing]
        verdict = "Nothing would work without them." if self.fatal else "Everything else works."
        return (
            "The bot token lacks these scopes:\n" + "\n".join(lines) + f"\n{verdict} "
            "Add them under OAuth & Permissions (manifest.yml has them all) and install the app again."
        )


def scope_report(header: str | None, wanted: Mapping[str, str] = NEEDED) -> Report:
    """What the `X-OAuth-Scopes` header of an answer says; None where there was none."""
    if header is None:
        return Report(known=False, missing=(), fatal=False)
    granted = {scope.strip() for scope in header.split(",") if scope.strip()}
    missing = tuple(scope for scope in wanted if scope not in granted)
    fatal = "chat:write" in missing or all(scope in missing for scope in _READING)
    return Report(known=True, missing=missing, fatal=fatal)
