"""A local workspace that speaks Slack's protocol, to try an app and to test it without Slack.

It is a server on 127.0.0.1 with the Web API methods an app of this kind uses, Socket Mode over a real
WebSocket, and a page in the browser where one person can act as several. An app connects with the real
slack_bolt and slack_sdk by one setting, the base URL of the Web API. The workspace knows nothing of the app:
whatever it does, it does because Slack does it, and where Slack documents a refusal it refuses.

Theory. `State` is plain data; `Core` is the only one that changes messages and tells everybody who should
hear of it (pages, the app's sockets, waiting tests, the saved file). The Web API, the page and the tests are
three doors to the same `Core`. Payloads are pure functions of the state. Faults are counters that the doors
ask before and after they act; a fault that struck is recorded, so that a test can prove that it tested it.

A crash loses at most the last fifth of a second of what is saved with `persist_path`; the file is always
whole. Sockets, trigger ids, response URLs, recorded calls and deliveries do not survive a restart.
"""

from bot.workspace.elements import Suggestion
from bot.workspace.faults import Faults
from bot.workspace.server import DEFAULT_SEED, Workspace
from bot.workspace.state import (
    Channel,
    Group,
    NotAcknowledged,
    SlackError,
    State,
    User,
    WorkspaceError,
    default_state,
)

__all__ = [
    "DEFAULT_SEED",
    "Channel",
    "Faults",
    "Group",
    "NotAcknowledged",
    "SlackError",
    "State",
    "Suggestion",
    "User",
    "Workspace",
    "WorkspaceError",
    "default_state",
]
