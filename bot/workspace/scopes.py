"""Which scope each method needs, and which ones the app has in a new workspace."""

from __future__ import annotations

from bot.workspace.state import Channel

DEFAULT_SCOPES = (
    "app_mentions:read",
    "channels:history",
    "channels:read",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "groups:history",
    "groups:read",
    "im:history",
    "im:read",
    "im:write",
    "reactions:read",
    "reactions:write",
    "usergroups:read",
    "users:read",
    "users:read.email",
)
APP_TOKEN_SCOPES = ("connections:write",)

# Methods whose scope does not depend on the conversation they are about.
REQUIRED: dict[str, str] = {
    "apps.connections.open": "connections:write",
    "bots.info": "users:read",
    "chat.appendStream": "chat:write",
    "chat.delete": "chat:write",
    "chat.postEphemeral": "chat:write",
    "chat.postMessage": "chat:write",
    "chat.startStream": "chat:write",
    "chat.stopStream": "chat:write",
    "chat.update": "chat:write",
    "conversations.join": "channels:join",
    "conversations.open": "im:write",
    "files.completeUploadExternal": "files:write",
    "files.getUploadURLExternal": "files:write",
    "files.info": "files:read",
    "reactions.add": "reactions:write",
    "reactions.get": "reactions:read",
    "reactions.remove": "reactions:write",
    "team.info": "team:read",
    "usergroups.list": "usergroups:read",
    "usergroups.users.list": "usergroups:read",
    "users.info": "users:read",
    "users.list": "users:read",
    "users.lookupByEmail": "users:read.email",
}
_PREFIX = {"channel": "channels", "group": "groups", "im": "im"}


def for_channel(channel: Channel, what: str) -> str:
    """The scope for `history` or `read` (that is `what`) of this conversation."""
    return f"{_PREFIX[channel.kind]}:{what}"
