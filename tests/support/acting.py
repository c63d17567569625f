"""The local workspace as an object for tests: every act of a person, and of an administrator, is a method of it."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bot.workspace import Suggestion, elements, server
from bot.workspace.core import Core
from bot.workspace.faults import Faults
from bot.workspace.interactions import Interactions, People
from bot.workspace.server import ApiCall, WebApi
from bot.workspace.socketmode import Delivery
from bot.workspace.state import Channel, Group, Json, State, User, WorkspaceError, default_state, wire


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


class Acts:
    """What people and administrators do in a workspace, and what can be seen of it."""

    core: Core
    state: State
    admin: Admin
    _people: People
    _interactions: Interactions
    _web_api: WebApi

    @property
    def bot_user_id(self) -> str:
        """The id that mentions of the app carry."""
        return self.state.bot_user_id

    @property
    def app_id(self) -> str:
        """The id of the app."""
        return self.state.app_id

    @property
    def team_id(self) -> str:
        """The id of the workspace."""
        return self.state.team_id

    @property
    def faults(self) -> Faults:
        """Faults on demand."""
        return self.core.faults

    @property
    def calls(self) -> list[ApiCall]:
        """All calls of the Web API so far."""
        return self._web_api.calls

    @property
    def deliveries(self) -> list[Delivery]:
        """Everything that was sent to the app, or could not be."""
        return self.core.sockets.deliveries

    def calls_to(self, method: str) -> list[ApiCall]:
        """The calls of one method."""
        return [call for call in self.calls if call.method == method]

    # -- people and places

    def user(self, key: str | User) -> User:
        """Somebody by id or name."""
        return key if isinstance(key, User) else self.state.user(key)

    def channel(self, key: str | Channel) -> Channel:
        """A conversation by id or name."""
        return key if isinstance(key, Channel) else self.state.channel(key)

    def dm(self, user: str | User) -> Channel:
        """The direct message between somebody and the app."""
        return self.state.open_im(self.user(user).id, self.core.clock())

    def add_user(self, name: str, **fields: Any) -> User:
        """Somebody more: any field of `User`, for guests, strangers, bots of other apps and so on."""
        defaults = {
            "id": self.state.new_id("U"),
            "real_name": name.title(),
            "email": f"{name}@example.com",
            "team_id": self.team_id,
        }
        user = User(name=name, **{**defaults, **fields})
        if user.is_bot and not user.bot_id:
            user.bot_id, user.app_id = self.state.new_id("B"), self.state.new_id("A")
        self.state.users[user.id] = user
        self.core.changes.tell({"type": "channels"})
        return user

    def add_channel(self, name: str, members: list[str] | None = None, **fields: Any) -> Channel:
        """A channel more, with these people (by name; default: everybody and the app)."""
        ids = [self.user(m).id for m in members] if members is not None else list(self.state.users)
        channel = Channel(self.state.new_id("C"), name, created=int(self.core.clock()), **fields)
        channel.members = ids
        self.state.channels[channel.id] = channel
        self.core.changes.tell({"type": "channels"})
        return channel

    def add_group(self, handle: str, users: list[str]) -> Group:
        """A user group more."""
        group = Group(self.state.new_id("S"), handle, handle, [self.user(u).id for u in users])
        self.state.groups[group.id] = group
        return group

    def join(self, user: str | User, channel: str | Channel) -> None:
        """Make somebody (or the app's bot user) a member."""
        self.core.join(self.user(user), self.channel(channel))

    def leave(self, user: str | User, channel: str | Channel) -> None:
        """End somebody's membership."""
        self.core.leave(self.user(user), self.channel(channel))

    # -- acts of people

    async def post(
        self,
        user: str | User,
        channel: str | Channel,
        text: str,
        thread_ts: str | None = None,
        *,
        broadcast: bool = False,
        files: dict[str, bytes] | None = None,
    ) -> str:
        """Post as somebody; returns the `ts`. `@name`, `@group`, `#channel` and addresses become entities."""
        message = self._people.post(
            self.user(user), self.channel(channel), text, thread_ts, broadcast=broadcast, files=files
        )
        return str(message["ts"])

    async def edit(self, user: str | User, channel: str | Channel, ts: str, text: str) -> None:
        """Change one's own message."""
        self._people.edit(self.user(user), self.channel(channel), ts, text)

    async def delete(self, user: str | User, channel: str | Channel, ts: str) -> None:
        """Delete a message: one's own, or any when an administrator or the app's bot user is named."""
        who, where = self.user(user), self.channel(channel)
        message = self.state.message(where.id, ts)
        if message is not None and (who.is_admin or who.id == self.bot_user_id):
            self.core.delete(where, message)
        else:
            self._people.delete(who, where, ts)

    async def react(
        self, user: str | User, channel: str | Channel, ts: str, name: str, *, add: bool = True
    ) -> None:
        """Add or remove a reaction."""
        self._people.react(self.user(user), self.channel(channel), ts, name, add=add)

    async def press(
        self,
        user: str | User,
        channel: str | Channel,
        message_ts: str,
        action_id: str | None = None,
        text: str | None = None,
        block_id: str | None = None,
        value: Any = None,
        values: Json | None = None,
    ) -> str:
        """Press a button, named by its words or its action_id (and, if need be, its `value`); or change a
        select and the like, where `value` is the option chosen. `values` are other inputs of the message, as
        `state.values`. Returns the `action_ts`; WorkspaceError when it is not there; NotAcknowledged."""
        who, where = self.user(user), self.channel(channel)
        message = self._interactions.visible(who, where, message_ts)
        found, entry = _choose(message.get("blocks", []), action_id, text, block_id, value)
        return await self._interactions.press(who, where, message, found, entry, values)

    async def press_in_view(
        self,
        user: str | User,
        view_id: str,
        action_id: str | None = None,
        text: str | None = None,
        block_id: str | None = None,
        value: Any = None,
    ) -> str:
        """Press or change an element of an open modal, or of the app's Home."""
        who = self.user(user)
        home = self.state.homes.get(who.id)
        if home is not None and home["id"] == view_id:
            found, entry = _choose(home["blocks"], action_id, text, block_id, value)
            return await self._interactions.press_in_home(who, found, entry)
        view = self._people.view(who, view_id)
        found, entry = _choose(view.body["blocks"], action_id, text, block_id, value)
        return await self._interactions.press_in_view(who, view, found, entry)

    async def slash(
        self, user: str | User, channel: str | Channel, command: str, text: str = ""
    ) -> Json | None:
        """Type a slash command; returns the body of the acknowledgement; NotAcknowledged."""
        return await self._interactions.slash(self.user(user), self.channel(channel), command, text)

    async def shortcut(
        self,
        user: str | User,
        callback_id: str,
        channel: str | Channel | None = None,
        message_ts: str = "",
    ) -> None:
        """Use a global shortcut, or one on a message."""
        who = self.user(user)
        if channel is None:
            return await self._interactions.shortcut(who, callback_id)
        where = self.channel(channel)
        message = self._interactions.visible(who, where, message_ts)
        await self._interactions.message_shortcut(who, where, message, callback_id)

    async def submit_view(self, user: str | User, view_id: str, values: Json | None = None) -> Json:
        """Submit a modal: `{"errors": {...}}`, `{"closed": True}`, `{"updated": view}`, `{"pushed": view}`.
        `values` are plain values by block_id or action_id, or value objects as in `state.values`."""
        view = self._people.view(self.user(user), view_id)
        filled = _fill(view.body["blocks"], values or {})
        return await self._interactions.submit(self.user(user), view, filled)

    async def close_view(self, user: str | User, view_id: str) -> None:
        """Dismiss a modal."""
        await self._interactions.close_view(self.user(user), self._people.view(self.user(user), view_id))

    async def open_home(self, user: str | User, tab: str = "home") -> None:
        """Look at the app's Home, or at the tab beside it."""
        self._interactions.open_home(self.user(user), tab)

    async def stop_session(self, user: str | User, channel: str | Channel, root_ts: str) -> None:
        """Press Slack's own button that stops an agent."""
        self._interactions.stop_session(self.user(user), self.channel(channel), root_ts)

    # -- what there is to see

    def messages(self, channel: str | Channel, thread_ts: str | None = None) -> list[Json]:
        """Copies of the channel's own messages, or of a thread (root first), oldest first, with metadata."""
        where = self.channel(channel)
        found = self.state.thread(where.id, thread_ts) if thread_ts else self.state.roots(where.id)
        return [wire(message, metadata=True) for message in found]

    def ephemerals(self, user: str | User) -> list[Json]:
        """Copies of what only this person sees, oldest first; each with its `channel`."""
        user_id = self.user(user).id
        mine = [m for m in self.state.ephemerals if m["_to"] == user_id]
        return [{**wire(m), "channel": m["_channel"]} for m in mine]

    def views(self, user: str | User) -> list[Json]:
        """The modals this person has open, the visible one last."""
        return self._people.views(self.user(user))

    def home(self, user: str | User) -> Json | None:
        """The app's Home as published for this person."""
        return copy.deepcopy(self.state.homes.get(self.user(user).id))

    # -- waiting

    async def wait_for(self, predicate: Callable[[], Any], timeout: float = 10) -> Any:
        """The first true value of `predicate`, called after every change; a LookupError of it means
        not yet. TimeoutError (after `timeout` seconds) with the last messages, calls and deliveries."""
        try:
            return await self.core.changes.wait_for(predicate, timeout)
        except TimeoutError as problem:
            raise TimeoutError(f"not within {timeout:g} s\n{self.dump()}") from problem.__cause__

    async def connected(self, n: int = 1, timeout: float = 10) -> None:
        """Wait until the app has at least `n` sockets that are neither silent nor asked to go."""
        await self.wait_for(lambda: len(self.core.sockets.usable()) >= n, timeout)

    async def settled(self, timeout: float = 10) -> None:
        """Wait until nothing that was sent to the app is still waiting for its acknowledgement."""
        await self.wait_for(lambda: all(d.done.is_set() for d in self.deliveries), timeout)

    def dump(self, last: int = 15) -> str:
        """The last messages, calls and deliveries as text, for people who read a failed test."""
        everything = [
            (m["ts"], c.name or c.id, m)
            for c in self.state.channels.values()
            for m in self.state.messages.get(c.id, {}).values()
        ]
        lines = ["messages:"]
        for ts, name, m in sorted(everything, key=lambda row: row[0])[-last:]:
            thread = f" in {m['thread_ts']}" if m.get("thread_ts") else ""
            buttons = [elements.label_of(e) for _, e in elements.elements(m.get("blocks", []))]
            lines.append(f"  {ts} #{name}{thread} {m.get('user')}: {m['text'][:120]!r} {buttons or ''}")
        lines.append("calls:")
        lines += [f"  {c.method} -> {(c.response or {}).get('error', c.status)}" for c in self.calls[-last:]]
        lines.append("deliveries:")
        for d in self.deliveries[-last:]:
            what = d.payload.get("event", {}).get("type", d.payload.get("type", d.type))
            lines.append(f"  {d.type} {what} {d.state} after {len(d.attempts)} attempts")
        return "\n".join(lines)


class Workspace(Acts, server.Workspace):
    """The workspace as a server, with people who act in it."""

    def __init__(
        self,
        port: int = 0,
        persist_path: Path | None = None,
        seed: Callable[[], State] = default_state,
        clock: Callable[[], float] = time.time,
        suggestions: Iterable[Suggestion] = (),
    ) -> None:
        super().__init__(port, persist_path, seed, clock, suggestions)
        self.admin = Admin(self.core)


def _choose(
    blocks: list[Json], action_id: str | None, text: str | None, block_id: str | None, value: Any
) -> tuple[tuple[Json, Json], Json]:
    """The element that was meant and the value object of pressing it."""
    if action_id is None and text is None and block_id is None:
        raise WorkspaceError("element_not_found", "name what to press: its text, action_id or block_id")
    wanted = {"action_id": action_id, "text": text, "block_id": block_id}
    found = elements.find(blocks, **wanted)
    if found[1]["type"] != "button":
        return found, elements.entry_for(found[1], value)
    return elements.find(blocks, **wanted, value=value), {"type": "button"}


def _fill(blocks: list[Json], values: Json) -> Json:
    """`state.values` from plain values keyed by block_id or action_id; WorkspaceError for an unknown key."""
    filled: Json = {}
    unknown = set(values)
    for block, element in elements.elements(blocks):
        block_id, action_id = block["block_id"], element["action_id"]
        for key in {block_id, action_id} & set(values):
            unknown.discard(key)
            given = values[key]
            if isinstance(given, dict) and action_id in given:
                given = given[action_id]
            filled.setdefault(block_id, {})[action_id] = elements.entry_for(element, given)
    if unknown:
        there = [f"{b['block_id']}/{e['action_id']}" for b, e in elements.elements(blocks)]
        raise WorkspaceError("element_not_found", f"no input {sorted(unknown)}; there are: {there}")
    return filled
