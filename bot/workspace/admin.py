"""What happens to channels and to the app itself from outside: archiving, sharing, new ids, revoked tokens."""

from __future__ import annotations

from bot.workspace.core import Core
from bot.workspace.state import Channel, Json


class Admin:
    """Acts of administrators, each with the event that the app gets."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def emit(self, event: Json) -> None:
        """Send the app any event; `event_ts` is added where it is missing."""
        self.core.sockets.event({"event_ts": self.core.now_ts(), **event})

    def archive(self, channel: Channel, *, archived: bool = True) -> None:
        """Archive a channel, or take it back: `channel_archive`, `group_unarchive` and so on."""
        channel.is_archived = archived
        kind = ("group" if channel.is_private else "channel") + ("_archive" if archived else "_unarchive")
        self._tell(channel, {"type": kind, "channel": channel.id, "is_moved": 0})

    def share(self, channel: Channel, *, shared: bool = True) -> None:
        """Share a channel with another team (Slack Connect), or end that."""
        channel.is_ext_shared = shared
        kind = "channel_shared" if shared else "channel_unshared"
        self._tell(channel, {"type": kind, "connected_team_id": "T0OTHER01", "channel": channel.id})

    def change_id(self, channel: Channel) -> str:
        """Give a channel another id, as happens to private ones that are shared; returns the old id."""
        state, old = self.core.state, channel.id
        channel.id = state.new_id("C")
        state.channels = {c.id: c for c in state.channels.values()}
        state.messages[channel.id] = state.messages.pop(old, {})
        for message in state.ephemerals:
            if message["_channel"] == old:
                message["_channel"] = channel.id
        event = {"type": "channel_id_changed", "old_channel_id": old, "new_channel_id": channel.id}
        self._tell(channel, event)
        return old

    def revoke_tokens(self) -> None:
        """Revoke the app's bot token: calls fail from now on, and the app is told."""
        self.core.faults.reject_token("token_revoked")
        self.emit({"type": "tokens_revoked", "tokens": {"oauth": [], "bot": [self.core.state.bot_user_id]}})

    def _tell(self, channel: Channel, event: Json) -> None:
        self.core.event(channel, {**event, "event_ts": self.core.now_ts()})
        self.core.changes.tell({"type": "channels"})
