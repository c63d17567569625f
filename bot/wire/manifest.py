"""The Slack app's manifest for the features that flows use: what `sayso manifest` prints."""

from __future__ import annotations

from collections.abc import Iterable

from bot.wire.scopes import EVENTS, NEEDED, events_for, has_shortcut, needed_by
from engine.flow import Flow

SHORTCUT = "sayso:run"
"""The message shortcut's `callback_id`."""

_HEAD = """\
# The Slack app. Create one from this file: https://api.slack.com/apps → Create New App → From a manifest.
# Then: Basic Information → App-Level Tokens → generate one with connections:write (SLACK_APP_TOKEN, xapp-…),
# and Install App → Bot User OAuth Token (SLACK_BOT_TOKEN, xoxb-…). `sayso doctor` checks both and this file.
# `sayso manifest` prints it anew for the flows that you serve: they may need more, or less.
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


def manifest_text(flows: Iterable[Flow] | None) -> str:
    """The manifest, as YAML, for an app that serves these flows; None means whatever flows may use."""
    known = None if flows is None else list(flows)
    needed, wanted = (NEEDED, EVENTS) if known is None else (needed_by(known), events_for(known))
    scopes = "".join(f"      - {scope}\n" for scope in sorted(needed))
    events = "".join(f"      - {event}\n" for event in sorted(wanted))
    return (
        _HEAD
        + (_SHORTCUTS if known is None or any(map(has_shortcut, known)) else "")
        + "oauth_config:\n  scopes:\n    bot:\n"
        + scopes
        + "settings:\n  event_subscriptions:\n    bot_events:\n"
        + events
        + _TAIL
    )
