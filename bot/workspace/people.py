"""What people do themselves, without the app: post, edit, delete, react. The page and the tests share it."""

from __future__ import annotations

from bot.workspace import payloads
from bot.workspace.core import Core
from bot.workspace.errors import WorkspaceError
from bot.workspace.methods import files as uploads
from bot.workspace.state import Channel, Json, User, View
from bot.workspace.text import to_entities
from bot.workspace.views import Views

MAX_TYPED = 12_000  # characters that Slack's composer takes before it makes a file of them


class People:
    """Acts of people. Errors are WorkspaceErrors that say what was wrong."""

    def __init__(self, core: Core, views: Views) -> None:
        self.core, self.open_views = core, views

    def post(
        self,
        user: User,
        channel: Channel,
        text: str,
        thread_ts: str | None = None,
        *,
        broadcast: bool = False,
        files: dict[str, bytes] | None = None,
    ) -> Json:
        """A message of this person. Mentions and addresses in `text` become entities; `files` are contents
        by name; `broadcast` shows a reply in the channel too."""
        if user.id not in channel.members:
            raise WorkspaceError("not_in_channel", f"{user.name} is not a member here")
        if not text.strip() and not files:
            raise WorkspaceError("no_text", "a message needs a text")
        if len(text) > MAX_TYPED:
            raise WorkspaceError("msg_too_long", f"{len(text)} characters, {MAX_TYPED} are allowed")
        attached = [self._attach(user, name, content) for name, content in (files or {}).items()]
        subtype = "file_share" if attached else "thread_broadcast" if thread_ts and broadcast else None
        return self.core.post(
            user,
            channel,
            to_entities(text, self.core.state),
            thread_ts=thread_ts,
            files=attached,
            subtype=subtype,
        )

    def _attach(self, user: User, name: str, content: bytes) -> Json:
        state = self.core.state
        file_id = state.new_id("F")
        state.files[file_id] = uploads.new_file(self.core.base_url, file_id, name, user.id)
        uploads.store(state.files, file_id, content)
        return uploads.shown(state.files[file_id])

    def _own(self, user: User, channel: Channel, ts: str) -> Json:
        message = self.core.state.message(channel.id, ts)
        if message is None or message.get("subtype") == "tombstone":
            raise WorkspaceError("message_not_found", f"no message {ts} in {channel.name or channel.id}")
        if message.get("user") != user.id:
            raise WorkspaceError("not_yours", "people change and delete only their own messages")
        return message

    def edit(self, user: User, channel: Channel, ts: str, text: str) -> Json:
        """Another text for one's own message."""
        if not text.strip():
            raise WorkspaceError("no_text", "a message needs a text")
        message = self._own(user, channel, ts)
        return self.core.edit(channel, message, {"text": to_entities(text, self.core.state)})

    def delete(self, user: User, channel: Channel, ts: str) -> None:
        """Delete one's own message."""
        self.core.delete(channel, self._own(user, channel, ts))

    def react(self, user: User, channel: Channel, ts: str, name: str, *, add: bool = True) -> None:
        """Add or remove a reaction such as `eyes`."""
        message = self.core.state.message(channel.id, ts)
        if message is None:
            raise WorkspaceError("message_not_found", f"no message {ts} in {channel.name or channel.id}")
        self.core.react(user, channel, message, name.strip(":"), add=add)

    def toggle(self, user: User, channel: Channel, ts: str, name: str) -> None:
        """Add the reaction, or remove it when this person had added it."""
        message = self.core.state.message(channel.id, ts) or {}
        mine = [r["name"] for r in message.get("reactions", []) if user.id in r["users"]]
        self.react(user, channel, ts, name, add=name.strip(":") not in mine)

    def view(self, user: User, view_id: str) -> View:
        """The modal with this id that this person has open."""
        found = self.core.state.views.get(view_id)
        if found is None or found.user_id != user.id:
            raise WorkspaceError("view_not_found", f"{user.name} has no modal {view_id} open")
        return found

    def views(self, user: User) -> list[Json]:
        """The modals this person has open, the visible one last, as payloads carry them."""
        return [payloads.view_field(self.core.state, view) for view in self.open_views.stack(user.id)]
