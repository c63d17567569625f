"""Scopes of the app with their purposes, and the manifest that `sayso manifest` prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from engine.flow import Flow

ALWAYS: dict[str, str] = {
    "chat:write": "posting messages",
    "app_mentions:read": "starting flows by mention",
    "channels:history": "reading replies in public channels",
    "groups:history": "reading replies in private channels",
    "im:history": "reading direct messages",
    "im:read": "finding direct messages that came while the bot was down",
    "commands": "the /sayso command",
    "channels:read": "finding the public channels it is in, and their members",
    "groups:read": "finding the private channels it is in, and their members",
    "users:read": "identifying people: without it nobody can answer or approve",
    "users:read.email": "approvers given by e-mail address",
    "usergroups:read": "approvers given as @group",
    "im:write": "messages to one person (`to: dm:...`)",
    "files:write": "files of messages, and text that is too long for one",
    "reactions:write": "reactions on messages: the state of a run, and accepted or refused answers",
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
    """Feature of some flows: scopes as in `ALWAYS`, events, and a test for flows that use it."""

    name: str
    scopes: Mapping[str, str]
    events: tuple[str, ...]
    used: Callable[[Flow], bool]


def _takes_files(flow: Flow) -> bool:
    nodes = (node for nodes in flow.lists.values() for node in nodes.nodes)
    return any(
        node.spec.mode == "prompt" and "files" in str(node.config.get("accept") or "") for node in nodes
    )


def has_shortcut(flow: Flow) -> bool:
    """True if a flow is started by the message shortcut."""
    return any(trigger.kind == "shortcut" for trigger in flow.triggers)


FEATURES = (
    Feature(
        "reactions",
        {"reactions:read": "flows that start with a reaction"},
        ("reaction_added",),
        lambda flow: any(trigger.kind == "reaction" for trigger in flow.triggers),
    ),
    Feature("files", {"files:read": "files that people add to a thread as an answer"}, (), _takes_files),
)

AGENT = Feature(
    "agent",
    {"assistant:write": "being a Slack agent"},
    ("agent_session_stopped", "agent_session_title_changed", "app_context_changed"),
    lambda flow: False,
)
"""Additional needs of a Slack agent: on request, independent of the flows."""

AGENT_WARNING = """\
Once an app is an agent, guests cannot use it, and every direct message to it begins a thread.
Slack may not undo this. Some features need a paid plan.
"""

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
    """Missing scopes. `fatal`: no part would work (posting, or reading any thread). `known` is False if the server does
    not report the scopes."""

    known: bool
    missing: tuple[str, ...]
    fatal: bool

    def text(self) -> str:
        """Return the broken functions, a line each, and the remedy."""
        if not self.missing:
            return "All scopes are granted." if self.known else "Slack does not report the granted scopes."
        lines = [f"  {scope}: needed for {NEEDED[scope]}" for scope in self.missing]
        verdict = "Nothing works without them." if self.fatal else "Everything else works."
        return (
            "The bot token lacks these scopes:\n" + "\n".join(lines) + f"\n{verdict} "
            "Add them under OAuth & Permissions (manifest.yml has them all) and reinstall the app."
        )


def granted(header: str | None) -> frozenset[str]:
    """The scopes that the `X-OAuth-Scopes` header of an answer names."""
    return frozenset(scope.strip() for scope in (header or "").split(",") if scope.strip())


def is_agent(header: str | None) -> bool:
    """True if the app is a Slack agent, which has a scope of its own."""
    return bool(AGENT.scopes.keys() & granted(header))


def scope_report(header: str | None, wanted: Mapping[str, str] = NEEDED) -> Report:
    """Return the report for the `X-OAuth-Scopes` header of a response, or None for a missing one."""
    if header is None:
        return Report(known=False, missing=(), fatal=False)
    missing = tuple(scope for scope in wanted if scope not in granted(header))
    fatal = "chat:write" in missing or all(scope in missing for scope in _READING)
    return Report(known=True, missing=missing, fatal=fatal)


SHORTCUT = "sayso:run"
"""The message shortcut's `callback_id`."""

_HEAD = """\
# The Slack app. Create one from this file: https://api.slack.com/apps → Create New App → From a manifest.
# Then: Basic Information → App-Level Tokens → generate one with connections:write (SLACK_APP_TOKEN, xapp-…),
# and Install App → Bot User OAuth Token (SLACK_BOT_TOKEN, xoxb-…). `sayso doctor` checks both and this file.
# `sayso manifest` prints it for the flows that you serve: they may need more, or less.
_metadata:
  major_version: 1
  minor_version: 1
display_information:
  name: sayso
  description: Runs flows in threads, stops for a person, and resumes exactly where it stopped.
  background_color: "#1f3a3d"
features:
  app_home:
    home_tab_enabled: true
    messages_tab_enabled: true
    messages_tab_read_only_enabled: false
  bot_user:
    display_name: sayso
    always_online: true
  slash_commands:
    - command: /sayso
      description: Start a flow, list flows, or see what is running
      usage_hint: run NAME key=value … | list | status | help
      should_escape: false
"""

_SHORTCUTS = f"""\
  shortcuts:
    - name: Run a flow
      type: message
      callback_id: {SHORTCUT}
      description: Start a flow about this message
"""

_TAIL = """\
  interactivity:
    is_enabled: true
  org_deploy_enabled: false
  socket_mode_enabled: true
  token_rotation_enabled: false
"""


_MOST_PROMPTS = 4


def _agent_view(flows: Iterable[Flow]) -> str:
    """The part of the manifest that makes an app an agent, with flows as what may be asked first."""
    prompts = "".join(
        f"      - title: {json.dumps(flow.name)}\n        message: {json.dumps(flow.name)}\n"
        for flow in sorted(flows, key=lambda flow: flow.name)[:_MOST_PROMPTS]
    )
    described = "  agent_view:\n    agent_description: Runs flows in threads and asks people for decisions.\n"
    return described + (f"    suggested_prompts:\n{prompts}" if prompts else "")


def manifest_text(flows: Iterable[Flow] | None, *, agent: bool = False) -> str:
    """The manifest, as YAML, for an app that serves these flows; None means whatever flows may use. With `agent` the app
    is an agent of Slack's."""
    known = None if flows is None else list(flows)
    needed, wanted = (NEEDED, EVENTS) if known is None else (needed_by(known), events_for(known))
    if agent:
        needed, wanted = {**needed, **AGENT.scopes}, (*wanted, *AGENT.events)
    scopes = "".join(f"      - {scope}\n" for scope in sorted(needed))
    events = "".join(f"      - {event}\n" for event in sorted(wanted))
    return (
        ("".join(f"# {line}\n" for line in AGENT_WARNING.splitlines()) if agent else "")
        + _HEAD
        + (_agent_view(known or ()) if agent else "")
        + (_SHORTCUTS if known is None or any(map(has_shortcut, known)) else "")
        + "oauth_config:\n  scopes:\n    bot:\n"
        + scopes
        + "settings:\n  event_subscriptions:\n    bot_events:\n"
        + events
        + _TAIL
    )
