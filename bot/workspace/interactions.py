"""Actions of people on the app's buttons, commands and modals, and the app's possible reactions.

An interaction hands the app two grants: a trigger id (opens one view, within 3 s) and a response URL (five answers,
within 30 minutes).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from bot.workspace import elements, payloads
from bot.workspace.core import Core, Views
from bot.workspace.elements import to_entities
from bot.workspace.methods import files as uploads
from bot.workspace.state import Channel, Json, NotAcknowledged, SlackError, User, View, WorkspaceError, copied

MAX_TYPED = 12_000  # characters that Slack's composer takes before it makes a file of them


def _there(message: Json | None, channel: Channel, ts: str) -> Json:
    """A message that is not deleted; WorkspaceError `message_not_found`."""
    if message is None or message.get("subtype") == "tombstone":
        raise WorkspaceError("message_not_found", f"no message {ts} in {channel.name or channel.id}")
    return message


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
        attached, state = [], self.core.state
        for name, content in (files or {}).items():
            file_id = state.new_id("F")
            state.files[file_id] = uploads.new_file(self.core.base_url, file_id, name, user.id)
            uploads.store(state.files, file_id, content)
            attached.append(uploads.shown(state.files[file_id]))
        subtype = "file_share" if attached else "thread_broadcast" if thread_ts and broadcast else None
        stored = to_entities(text, state)
        return self.core.post(user, channel, stored, thread_ts=thread_ts, files=attached, subtype=subtype)

    def _own(self, user: User, channel: Channel, ts: str) -> Json:
        message = _there(self.core.state.message(channel.id, ts), channel, ts)
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
        message = _there(self.core.state.message(channel.id, ts), channel, ts)
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


RESPONSE_SECONDS = 1800.0
RESPONSE_USES = 5


@dataclass(slots=True)
class ResponseGrant:
    """A response URL: where its answers go and how many are left."""

    user: User
    channel: Channel
    message_ts: str
    ephemeral: bool
    thread_ts: str | None
    expires: float
    uses: int = RESPONSE_USES


class Interactions:
    """Presses, commands, shortcuts and modals of people."""

    def __init__(self, core: Core, views: Views) -> None:
        self.core, self.views = core, views
        self.responses: dict[str, ResponseGrant] = {}
        self._send = core.sockets.interaction

    # -- grants

    def _grant(self, user: User, channel: Channel | None, message: Json | None = None) -> Json:
        trigger_id = self.views.new_trigger(user)
        if channel is None:
            return {"trigger_id": trigger_id, "response_url": ""}
        key = secrets.token_hex(12)
        ts = message["ts"] if message else ""
        thread_ts = message.get("thread_ts") if message else None
        expires = self.core.clock() + RESPONSE_SECONDS
        ephemeral = bool(message and message.get("is_ephemeral"))
        self.responses[key] = ResponseGrant(user, channel, ts, ephemeral, thread_ts, expires)
        url = f"{self.core.base_url}/response/{self.core.state.app_id}/{key}"
        return {"trigger_id": trigger_id, "response_url": url}

    # -- messages

    def visible(self, user: User, channel: Channel, ts: str) -> Json:
        """The message with this `ts` as this person sees it; WorkspaceError `message_not_found`."""
        return _there(
            self.core.ephemeral(user.id, ts) or self.core.state.message(channel.id, ts), channel, ts
        )

    async def press(
        self,
        user: User,
        channel: Channel,
        message: Json,
        found: tuple[Json, Json],
        entry: Json,
        values: Json | None = None,
    ) -> str:
        """Press or change the element `found` (its block and itself) of a message; returns the `action_ts`.
        `values` are the other inputs of the message. NotAcknowledged when the app does not take it."""
        if self.core.audience(channel) is not None and user.id not in channel.members:
            raise WorkspaceError("channel_not_found", f"{user.name} is not in this conversation")
        block, element = found
        action_ts = self.core.now_ts()
        action = elements.action_for(block, element, entry, action_ts)
        state = elements.merged(elements.initial_values(message.get("blocks", [])), values)
        if element["type"] not in elements.STATELESS:
            state.setdefault(block["block_id"], {})[element["action_id"]] = entry
        grant = self._grant(user, channel, message)
        payload = payloads.message_actions(self.core.state, user, channel, message, action, state, grant)
        await self._send("interactive", payload)
        return action_ts

    async def press_in_view(
        self, user: User, view: View, found: tuple[Json, Json], entry: Json, values: Json | None = None
    ) -> str:
        """Press or change an element of an open modal; returns the `action_ts`."""
        block, element = found
        action_ts = self.core.now_ts()
        view.values = elements.merged(view.values, values)
        if element["type"] not in elements.STATELESS:
            view.values.setdefault(block["block_id"], {})[element["action_id"]] = entry
        # Inputs tell the app of changes only where the block asks for it.
        if block["type"] == "input" and not block.get("dispatch_action"):
            return action_ts
        shown = payloads.view_field(self.core.state, view)
        trigger_id = self.views.new_trigger(user, view)
        return await self._act_on_view(user, shown, found, entry, trigger_id, action_ts)

    async def press_in_home(
        self, user: User, found: tuple[Json, Json], entry: Json, values: Json | None = None
    ) -> str:
        """Press or change an element on the app's Home; returns the `action_ts`."""
        block, element = found
        action_ts, home = self.core.now_ts(), self.core.state.homes[user.id]
        filled = elements.merged(home["state"]["values"], values)
        if element["type"] not in elements.STATELESS:
            filled.setdefault(block["block_id"], {})[element["action_id"]] = entry
        home["state"]["values"] = filled
        if block["type"] == "input" and not block.get("dispatch_action"):
            return action_ts
        trigger_id = self.views.new_trigger(user)
        return await self._act_on_view(user, copied(home), found, entry, trigger_id, action_ts)

    async def _act_on_view(
        self, user: User, shown: Json, found: tuple[Json, Json], entry: Json, trigger_id: str, action_ts: str
    ) -> str:
        action = elements.action_for(*found, entry, action_ts)
        payload = payloads.view_actions(self.core.state, user, shown, action, trigger_id)
        await self._send("interactive", payload)
        return action_ts

    # -- commands and shortcuts

    async def slash(self, user: User, channel: Channel, command: str, text: str) -> Json | None:
        """Send a slash command; returns what the app answered with its acknowledgement, and shows it."""
        if command not in self.core.state.commands:
            raise WorkspaceError("invalid_command", f"{command} is not a command of an app here")
        grant = self._grant(user, channel)
        payload = payloads.slash_command(self.core.state, user, channel, command, text, grant)
        answer = await self._send("slash_commands", payload)
        if answer and (answer.get("text") or answer.get("blocks")):
            key = grant["response_url"].rsplit("/", 1)[1]
            self.show_answer(self.responses[key], answer)
        return answer

    async def shortcut(self, user: User, callback_id: str) -> None:
        """Use a global shortcut."""
        payload = payloads.shortcut(
            self.core.state, user, callback_id, self.views.new_trigger(user), self.core.now_ts()
        )
        await self._send("interactive", payload)

    async def message_shortcut(self, user: User, channel: Channel, message: Json, callback_id: str) -> None:
        """Use a shortcut on a message."""
        grant = self._grant(user, channel, message)
        payload = payloads.message_shortcut(
            self.core.state, user, channel, message, callback_id, grant, self.core.now_ts()
        )
        await self._send("interactive", payload)

    # -- modals and Home

    async def submit(self, user: User, view: View, values: Json) -> Json:
        """Submit a modal: `{"errors": {block_id: message}}`, `{"closed": True}`, `{"updated": view}` or
        `{"pushed": view}`. Required inputs are checked first, as Slack's own client does."""
        view.values = elements.merged(view.values, values)
        problems = elements.missing_inputs(view.body["blocks"], view.values)
        if problems:
            return {"errors": problems}
        trigger_id = self.views.new_trigger(user, view)
        payload = payloads.view_submission(self.core.state, user, view, trigger_id)
        answer = await self._send("interactive", payload) or {}
        return self.views.answer_submission(user, view, answer)

    async def close_view(self, user: User, view: View) -> None:
        """Dismiss a modal; the app hears of it if it asked to. A failure to tell it is not the person's."""
        self.views.remove(view)
        if view.body.get("notify_on_close"):
            try:
                await self._send("interactive", payloads.view_closed(self.core.state, user, view, False))
            except NotAcknowledged:
                return

    def open_home(self, user: User, tab: str = "home") -> None:
        """Tell the app that this person looks at its Home, or at the messages beside it."""
        channel = self.core.state.open_im(user.id, self.core.clock())
        event = payloads.home_event(self.core.state, user, channel.id, self.core.now_ts(), tab)
        self.core.sockets.event(event)

    def stop_session(self, user: User, channel: Channel, root_ts: str) -> None:
        """Press Slack's own button that stops an agent, which is there while it works. WorkspaceError."""
        root = self.core.state.message(channel.id, root_ts) or {}
        if (root.get("_session") or {}).get("status") != "processing":
            raise WorkspaceError("not_processing", "nothing works in this thread")
        self.core.sockets.event(payloads.stopped_event(user, channel, root_ts, self.core.now_ts()))

    # -- answers by response URL

    def answer_by_url(self, key: str, body: Json) -> None:
        """Show an answer that the app posted to a response URL; SlackError `expired_url`, `used_url` or `no_text`."""
        grant = self.responses.get(key)
        if grant is None or self.core.clock() > grant.expires:
            raise SlackError("expired_url")
        if grant.uses <= 0:
            raise SlackError("used_url")
        grant.uses -= 1
        self.show_answer(grant, body)

    def show_answer(self, grant: ResponseGrant, body: Json) -> None:
        """Carry an answer out: replace or delete the message that was pressed, or post a new one."""
        content = self.core.content(str(body.get("text") or ""), body.get("blocks") or [])
        if grant.ephemeral:
            original = self.core.ephemeral(grant.user.id, grant.message_ts)
        else:
            original = self.core.state.message(grant.channel.id, grant.message_ts)
        if body.get("delete_original"):
            self._change_original(grant, original, None)
        elif body.get("replace_original") and original is not None:
            self._change_original(grant, original, content)
        elif not content["text"] and not content["blocks"]:
            raise SlackError("no_text")
        elif body.get("response_type") == "in_channel":
            thread_ts = grant.thread_ts if grant.message_ts else None
            self.core.post(self.core.state.bot_user, grant.channel, thread_ts=thread_ts, **content)
        else:
            self.core.post_ephemeral(grant.channel, grant.user, thread_ts=grant.thread_ts, **content)

    def _change_original(self, grant: ResponseGrant, original: Json | None, content: Json | None) -> None:
        if original is None:
            raise SlackError("message_not_found")
        if content is not None:
            content = {"text": content["text"], "blocks": content["blocks"] or None}
        if grant.ephemeral:
            self.core.replace_ephemeral(original, content)
        elif content is None:
            self.core.delete(grant.channel, original)
        else:
            self.core.edit(grant.channel, original, content)
