"""Everything that can happen in the workspace, caused by a person on the page, a test, or the app.
Views among it: trigger ids, the stack of modals of a person, and how a submission ends.

Each operation changes the state, tells the pages, and sends the app the events it is subscribed to. The app
hears only of conversations it is a member of.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bot.workspace import blocks, elements, payloads
from bot.workspace.elements import Suggestion, mentions
from bot.workspace.faults import Faults
from bot.workspace.payloads import Changes
from bot.workspace.socketmode import SocketMode
from bot.workspace.state import Channel, Json, SlackError, State, User, View, copied, wire


class Core:
    """The state with its neighbours: who listens to changes, and the sockets of the app."""

    def __init__(self, state: State, clock: Callable[[], float]) -> None:
        self.state = state
        self.clock = clock
        self.faults = Faults(clock=clock)
        self.changes = Changes()
        self.sockets = SocketMode(state, self.faults, self.changes, clock)
        self.base_url = ""
        self.suggestions: tuple[Suggestion, ...] = ()

    def with_ids(self, given: list[Json]) -> list[Json]:
        """Blocks as they are stored: each block and element has an id."""
        return elements.with_ids(given, self.state.new_id("b").lower()) if given else []

    def content(self, text: str, given: list[Json]) -> Json:
        """Text and blocks of a message, checked."""
        blocks.check_message(text, given)
        return {"text": text, "blocks": self.with_ids(given)}

    def now_ts(self) -> str:
        """A fresh timestamp of the workspace."""
        return self.state.new_ts(self.clock())

    # -- messages

    def post(
        self, author: User, channel: Channel, text: str, *, thread_ts: str | None = None, **fields: Any
    ) -> Json:
        """Store a message of `author`. `fields` are further parts of it (blocks, metadata, subtype, files);
        empty ones are left out. Raises SlackError when the channel or the thread cannot take it."""
        if channel.is_archived:
            raise SlackError("is_archived", f"#{channel.name} is archived")
        if thread_ts is not None:
            found = self.state.message(channel.id, thread_ts)
            if found is None:
                raise SlackError(
                    "thread_not_found", f"no message {thread_ts} in {channel.name or channel.id}"
                )
            thread_ts = str(found.get("thread_ts", thread_ts))
        message: Json = {"type": "message", "user": author.id, "text": text, "ts": self.now_ts()}
        message["team"] = author.team_id
        if author.is_bot:
            message.update(bot_id=author.bot_id, app_id=author.app_id)
        else:
            message["client_msg_id"] = f"local-{message['ts']}"
        if thread_ts:
            message["thread_ts"] = thread_ts
        message.update({key: value for key, value in fields.items() if value})
        self.state.add_message(channel.id, message)
        root = self.state.message(channel.id, message.get("thread_ts", ""))
        if root is not None and root is not message:
            self._push_message("message_changed", channel, root)
        self._push_message("message", channel, message)
        events = [payloads.message_event(channel, message)]
        bot = self.state.bot_user_id
        if not channel.is_im and author.id != bot and mentions(message["text"], bot):
            place = 0 if self.faults.mention_order == "mention_first" else 1
            events.insert(place, payloads.mention_event(channel, message))
        for event in events:
            self.event(channel, event)
        return message

    def edit(self, channel: Channel, message: Json, changes: Json) -> Json:
        """Replace parts of a message (None removes a part) and mark it as edited; returns the new one."""
        before = copied(message)
        after = _changed(message, changes)
        ts = self.now_ts()
        # Slack does not mark an app's update as edited while blocks are what people see.
        if not (before.get("bot_id") and after.get("blocks")):
            after["edited"] = {"user": message["user"], "ts": ts}
        self.state.replace_message(channel.id, after)
        self._push_message("message_changed", channel, after)
        self.event(channel, payloads.changed_event(channel, before, after, ts))
        # Slack mentions the app again when somebody edits a post that mentions it; `edited` tells it apart.
        if not before.get("bot_id") and not channel.is_im and mentions(after["text"], self.state.bot_user_id):
            self.event(channel, payloads.mention_event(channel, after))
        return after

    def note(self, channel: Channel, message: Json, changes: Json) -> None:
        """Change what the workspace knows of a message. Pages show it, and the app hears nothing of it."""
        after = _changed(message, changes)
        self.state.replace_message(channel.id, after)
        self._push_message("message_changed", channel, after)

    def delete(self, channel: Channel, message: Json) -> None:
        """Delete a message; a root with replies leaves a tombstone."""
        gone = self.state.remove_message(channel.id, message["ts"])
        root_ts = gone.get("thread_ts")
        stone = self.state.message(channel.id, gone["ts"])
        if stone is not None:
            self._push_message("message_changed", channel, stone)
        else:
            self._push("message_deleted", channel, ts=gone["ts"], thread_ts=root_ts)
            root = self.state.message(channel.id, root_ts) if root_ts else None
            if root is not None:
                self._push("message_changed", channel, message=self.shown(channel, root))
        self.event(channel, payloads.changed_event(channel, gone, None, self.now_ts()))

    def react(self, user: User, channel: Channel, message: Json, name: str, *, add: bool) -> None:
        """Add or remove a reaction; SlackError `already_reacted` or `no_reaction`."""
        reactions: list[Json] = message.get("reactions", [])
        entry = next((r for r in reactions if r["name"] == name), None)
        has_reacted = entry is not None and user.id in entry["users"]
        if add and has_reacted:
            raise SlackError("already_reacted")
        if not add and not has_reacted:
            raise SlackError("no_reaction")
        if entry is None:
            entry = {"name": name, "users": [], "count": 0}
            reactions = [*reactions, entry]
        (entry["users"].append if add else entry["users"].remove)(user.id)
        entry["count"] = len(entry["users"])
        message["reactions"] = [r for r in reactions if r["count"]]
        if not message["reactions"]:
            del message["reactions"]
        self._push_message("reaction", channel, message)
        kind = "reaction_added" if add else "reaction_removed"
        self.event(channel, payloads.reaction_event(kind, user, channel, message, name, self.now_ts()))

    def post_ephemeral(
        self, channel: Channel, user: User, text: str, *, thread_ts: str | None = None, **fields: Any
    ) -> Json:
        """Show a message of the app to one person only. It is in no history and makes no event."""
        bot = self.state.bot_user
        message: Json = {"type": "message", "user": bot.id, "text": text, "ts": self.now_ts()}
        message.update(bot_id=bot.bot_id, app_id=bot.app_id, team=bot.team_id, is_ephemeral=True)
        if thread_ts:
            message["thread_ts"] = thread_ts
        message.update(
            {key: value for key, value in fields.items() if value}, _to=user.id, _channel=channel.id
        )
        self.state.ephemerals.append(message)
        self._push_message("ephemeral", channel, message, user)
        return message

    def ephemeral(self, user_id: str, ts: str) -> Json | None:
        """The stored ephemeral message with this `ts` that this person sees."""
        mine = (message for message in self.state.ephemerals if message["_to"] == user_id)
        return next((message for message in mine if message["ts"] == ts), None)

    def replace_ephemeral(self, message: Json, changes: Json | None) -> None:
        """Change an ephemeral message in place, or take it away (None)."""
        channel = self.state.channels[message["_channel"]]
        user = self.state.users[message["_to"]]
        if changes is None:
            self.state.ephemerals.remove(message)
            thread_ts = message.get("thread_ts")
            self._push("message_deleted", channel, user, ts=message["ts"], thread_ts=thread_ts)
            return
        message.update(changes)
        for key in [key for key, value in message.items() if value is None]:
            del message[key]
        self._push_message("message_changed", channel, message, user)

    # -- membership

    def join(self, user: User, channel: Channel) -> None:
        """Make somebody a member; no effect when they are one."""
        if user.id not in channel.members:
            channel.members.append(user.id)
            event = payloads.membership_event(
                self.state, "member_joined_channel", user, channel, self.now_ts()
            )
            self.event(channel, event)
            self.changes.tell({"type": "channels"})

    def leave(self, user: User, channel: Channel) -> None:
        """End a membership; the app hears of it even when it was itself removed."""
        if user.id in channel.members:
            event = payloads.membership_event(self.state, "member_left_channel", user, channel, self.now_ts())
            self.event(channel, event)
            channel.members.remove(user.id)
            self.changes.tell({"type": "channels"})

    # -- telling

    def event(self, channel: Channel, event: Json) -> None:
        """Send the app an event of this conversation, if it is a member."""
        if self.state.bot_user_id in channel.members:
            self.sockets.event(event)

    def shown(self, channel: Channel, message: Json) -> Json:
        """A message as the page gets it."""
        session = {"agent_session": message["_session"]} if "_session" in message else {}
        return {**wire(message), **session, "channel": channel.id}

    def audience(self, channel: Channel) -> frozenset[str] | None:
        """Return the people who may see the conversation; None for a public channel: everyone."""
        return frozenset(channel.members) if channel.is_im or channel.is_private else None

    def _push_message(self, kind: str, channel: Channel, message: Json, to: User | None = None) -> None:
        shown = self.shown(channel, message)
        self._push(kind, channel, to, message=shown, thread_ts=message.get("thread_ts"))

    def _push(self, kind: str, channel: Channel, to: User | None = None, **fields: Any) -> None:
        """Tell the pages of one person, or of all who may see the conversation."""
        body = {"type": kind, "channel": channel.id, **fields}
        self.changes.tell(body, frozenset({to.id}) if to else self.audience(channel))


def _changed(message: Json, changes: Json) -> Json:
    """A message with other parts; None removes one."""
    return {key: value for key, value in {**message, **changes}.items() if value is not None}


# --- views -------------------------------------------------------------------------------------------------


TRIGGER_SECONDS = 3.0
MAX_STACK = 3


@dataclass(slots=True)
class Trigger:
    """The right to open one view for a person, for a short time."""

    user: User
    expires: float
    view_id: str | None
    is_used: bool = False


class Views:
    """The open modals of everybody."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.triggers: dict[str, Trigger] = {}

    def new_trigger(self, user: User, view: View | None = None) -> str:
        """A trigger id for an interaction of this person (with a view, when it came from one)."""
        serial = self.core.state.new_id("X")
        trigger_id = f"{serial}.{self.core.state.team_id}.{secrets.token_hex(8)}"
        expires = self.core.clock() + TRIGGER_SECONDS
        self.triggers[trigger_id] = Trigger(user, expires, view.id if view else None)
        return trigger_id

    def _spend(self, trigger_id: str) -> Trigger:
        trigger = self.triggers.get(trigger_id)
        if trigger is None:
            raise SlackError("invalid_trigger_id")
        if self.core.clock() > trigger.expires:
            raise SlackError("expired_trigger_id")
        if trigger.is_used:
            raise SlackError("exchanged_trigger_id")
        trigger.is_used = True
        return trigger

    def stack(self, user_id: str) -> list[View]:
        """The modals this person has open, the visible one last."""
        return [view for view in self.core.state.views.values() if view.user_id == user_id]

    def open(self, trigger_id: str, body: Json) -> View:
        """`views.open`; what was open before is closed."""
        blocks.check_view(body)
        trigger = self._spend(trigger_id)
        for view in self.stack(trigger.user.id):
            self.remove(view)
        return self._show(trigger.user, body, None)

    def push(self, trigger_id: str, body: Json) -> View:
        """`views.push`; only from a modal, and at most three deep."""
        blocks.check_view(body)
        trigger = self._spend(trigger_id)
        below = self.core.state.views.get(trigger.view_id or "")
        if below is None:
            raise SlackError("not_found", "the trigger does not come from an open modal")
        return self._push_on(trigger.user, below, body)

    def _push_on(self, user: User, below: View, body: Json) -> View:
        if len(self.stack(user.id)) >= MAX_STACK:
            raise SlackError("push_limit_reached")
        return self._show(user, body, below)

    def update(self, body: Json, view_id: str = "", external_id: str = "", hash_: str = "") -> View:
        """`views.update`; SlackError `not_found`, or `hash_conflict` when it changed meanwhile."""
        for view in self.core.state.views.values():
            if view.id == view_id or (external_id and view.body.get("external_id") == external_id):
                break
        else:
            raise SlackError("not_found")
        blocks.check_view(body)
        if hash_ and hash_ != view.hash:
            raise SlackError("hash_conflict")
        self._replace(view, body)
        return view

    def _replace(self, view: View, body: Json) -> None:
        kept = view.values
        view.body = self._with_ids(body, view.id)
        view.hash = self._hash()
        view.values = elements.initial_values(view.body["blocks"])
        # Slack keeps what the person typed where block_id and action_id stay the same.
        for block_id, entries in view.values.items():
            for action_id, entry in entries.items():
                before = kept.get(block_id, {}).get(action_id)
                if before is not None and before["type"] == entry["type"]:
                    entries[action_id] = before
        self._tell("view_updated", view)

    def publish(self, user: User, body: Json, hash_: str = "") -> Json:
        """`views.publish`: the app's Home for one person."""
        blocks.check_view(body)
        before = self.core.state.homes.get(user.id)
        if before is not None and hash_ and hash_ != before["hash"]:
            raise SlackError("hash_conflict")
        view_id = before["id"] if before else self.core.state.new_id("V")
        view = View(view_id, user.id, self._with_ids(body, view_id), self._hash(), view_id)
        view.values = elements.initial_values(view.body["blocks"])
        home = payloads.view_field(self.core.state, view)
        self.core.state.homes[user.id] = home
        self.core.changes.tell({"type": "home", "view": copy.deepcopy(home)}, frozenset({user.id}))
        return home

    def _show(self, user: User, body: Json, below: View | None) -> View:
        external = body.get("external_id")
        if external and any(v.body.get("external_id") == external for v in self.core.state.views.values()):
            raise SlackError("duplicate_external_id")
        view_id = self.core.state.new_id("V")
        root_id = below.root_id if below else view_id
        filled = self._with_ids(body, view_id)
        view = View(view_id, user.id, filled, self._hash(), root_id, below.id if below else None)
        view.values = elements.initial_values(filled["blocks"])
        self.core.state.views[view_id] = view
        self._tell("view_opened", view)
        return view

    @staticmethod
    def _with_ids(body: Json, seed: str) -> Json:
        return {**copy.deepcopy(body), "blocks": elements.with_ids(body["blocks"], seed)}

    def _hash(self) -> str:
        return f"{int(self.core.clock())}.{secrets.token_hex(4)}"

    def remove(self, view: View) -> None:
        """Take one view away."""
        if self.core.state.views.pop(view.id, None) is not None:
            self._tell("view_closed", view)

    def _tell(self, news: str, view: View) -> None:
        shown = payloads.view_field(self.core.state, view)
        body = {"type": news, "view": shown, "view_id": view.id}
        self.core.changes.tell(body, frozenset({view.user_id}))

    def answer_submission(self, user: User, view: View, answer: Json) -> Json:
        """Carry out the `response_action` of an acknowledgement (none means: close this view)."""
        action = answer.get("response_action")
        if action == "errors":
            errors = answer.get("errors") or {}
            inputs = {block["block_id"] for block in view.body["blocks"] if block["type"] == "input"}
            unknown = sorted(set(errors) - inputs)
            if unknown or not errors:
                # Slack shows "We had some trouble connecting" and leaves the modal open.
                text = f"the app answered with errors for {unknown}; inputs are {sorted(inputs)}"
                raise SlackError("invalid_response", text)
            return {"errors": dict(errors)}
        if action == "clear":
            for open_view in self.stack(user.id):
                self.remove(open_view)
            return {"closed": True}
        if action in ("update", "push"):
            blocks.check_view(answer["view"])
        if action == "update":
            self._replace(view, answer["view"])
            return {"updated": payloads.view_field(self.core.state, view)}
        if action == "push":
            return {"pushed": payloads.view_field(self.core.state, self._push_on(user, view, answer["view"]))}
        self.remove(view)
        return {"closed": True}
