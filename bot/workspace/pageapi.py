"""API of the page in the browser: JSON over HTTP, and a WebSocket for news.

The person is chosen by `as=<user id>`: anybody who can open the page may act as anybody. That is the purpose of a local
workspace, and the reason why it listens on loopback only and refuses requests of other origins.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import WSMsgType, web

from bot.workspace import elements
from bot.workspace.core import Core, Views
from bot.workspace.interactions import Interactions, People
from bot.workspace.payloads import Push
from bot.workspace.state import Channel, Json, NotAcknowledged, User, WorkspaceError, in_channel

NOT_SLACK = "A local workspace. It is not Slack; nothing leaves this machine."


class PageApi:
    """Handlers of `/page/*`."""

    def __init__(self, core: Core, views: Views, interactions: Interactions, people: People) -> None:
        self.core, self.views, self.interactions, self.people = core, views, interactions, people
        self._queues: dict[asyncio.Queue[Json | None], str] = {}
        core.changes.listeners.append(self._pass_on)

    def routes(self) -> list[web.RouteDef]:
        """The routes of the page protocol."""
        interactions = self.interactions
        posts: dict[str, Callable[[User, Json], Awaitable[Json | None]]] = {
            "post": self._post,
            "edit": self._edit,
            "delete": self._delete,
            "react": self._react,
            "read": self._read,
            "action": self._action,
            "slash": self._slash,
            "shortcut": self._shortcut,
            "home": self._open_home,
            "stop": self._stop,
            "view/submit": self._submit,
            "view/close": lambda me, body: interactions.close_view(me, self.people.view(me, body["view_id"])),
        }
        return [
            web.get("/page/state", self._get(self._state)),
            web.get("/page/messages", self._get(self._messages)),
            web.get("/page/home", self._get(lambda me, query: {"view": self.core.state.homes.get(me.id)})),
            web.get("/page/views", self._get(lambda me, query: {"views": self.people.views(me)})),
            web.get("/page/limits", self._get(self._limits)),
            web.get("/page/ws", self._socket),
            *(web.post(f"/page/{name}", self._handler(work)) for name, work in posts.items()),
        ]

    # -- the frame of every request

    def _user(self, key: Any) -> User:
        if not isinstance(key, str) or key not in self.core.state.users:
            raise WorkspaceError("user_not_found", f"as={key!r} is nobody here")
        return self.core.state.users[key]

    def _get(self, work: Callable[[User, Any], Json]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            # An address that names nobody shows the first person of the workspace.
            people = (u.id for u in self.core.state.users.values() if not u.is_bot and not u.deleted)
            try:
                user = self._user(request.query.get("as") or next(people, None))
                return web.json_response(work(user, request.query))
            except WorkspaceError as problem:
                return _refused(problem)

        return handle

    def _handler(
        self, work: Callable[[User, Json], Awaitable[Json | None]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                if request.content_type != "application/json":
                    raise WorkspaceError("invalid_arguments", "the body must be application/json")
                try:
                    body = json.loads(await request.text())
                except ValueError as problem:
                    text = f"the body is no JSON: {problem}"
                    raise WorkspaceError("invalid_arguments", text) from problem
                if not isinstance(body, dict):
                    raise WorkspaceError("invalid_arguments", "the body must be an object")
                return web.json_response({"ok": True, **(await work(self._user(body.get("as")), body) or {})})
            except WorkspaceError as problem:
                return _refused(problem)
            except (KeyError, TypeError, AttributeError) as problem:
                text = f"the request has not the expected shape: {problem!r}"
                return _refused(WorkspaceError("invalid_arguments", text))

        return handle

    def _channel(self, user: User, key: Any) -> Channel:
        channel = self.core.state.channel(str(key))
        if self.core.audience(channel) is not None and user.id not in channel.members:
            raise WorkspaceError("channel_not_found", f"{user.name} is not in this conversation")
        return channel

    # -- reading

    def _state(self, user: User, query: Any) -> Json:
        state = self.core.state
        self.core.state.open_im(user.id, self.core.clock())
        visible = [
            c for c in state.channels.values() if (self.core.audience(c) is None or user.id in c.members)
        ]
        offered = {"commands": state.commands, "shortcuts": state.shortcuts}
        return {
            "team": {"id": state.team_id, "name": state.team_name},
            "not_slack": NOT_SLACK,
            "me": user.id,
            "bot": {"user_id": state.bot_user_id, "name": state.app_name, **offered},
            "users": [_person(u) for u in state.users.values()],
            "groups": [{"id": g.id, "handle": g.handle, "name": g.name} for g in state.groups.values()],
            "channels": [self._channel_shown(user, c) for c in visible],
            "suggestions": elements.shown(self.core.suggestions, state, {c.id for c in visible}),
            "connected_sockets": len(self.core.sockets.connections),
            "limits": self.core.faults.limits.factor,
        }

    def _limits(self, user: User, query: Any) -> Json:
        """Return the usage of Slack's limits; methods that were neither called in the last minute nor refused are left
        out."""
        rows = self.core.faults.limits.shown(self.core.clock())
        return {"limits": [row for row in rows if row["used"] or row["refused"]]}

    def _channel_shown(self, user: User, channel: Channel) -> Json:
        mark = self.core.state.read_marks.get(f"{user.id}:{channel.id}", "")
        roots = self.core.state.roots(channel.id)
        unread = sum(1 for m in roots if m["ts"] > mark and m.get("user") != user.id)
        name = self.core.state.app_name if channel.is_im else channel.name
        return {
            "id": channel.id,
            "name": name,
            "is_im": channel.is_im,
            "is_private": channel.is_private,
            "is_archived": channel.is_archived,
            "is_ext_shared": channel.is_ext_shared,
            "is_member_bot": self.core.state.bot_user_id in channel.members,
            "topic": channel.topic,
            "members": list(channel.members),
            "unread": unread,
            "latest": next(reversed(self.core.state.messages.get(channel.id, {})), ""),
        }

    def _messages(self, user: User, query: Any) -> Json:
        channel = self._channel(user, query.get("channel", ""))
        root_ts = query.get("thread_ts")
        own = [m for m in self.core.state.ephemerals if m["_to"] == user.id and m["_channel"] == channel.id]
        if root_ts:
            found = self.core.state.thread(channel.id, root_ts)
            found += [m for m in own if m.get("thread_ts") == root_ts]
        else:
            self._mark_read(user, channel)
            found = self.core.state.roots(channel.id) + [m for m in own if in_channel(m)]
        found.sort(key=lambda message: float(message["ts"]))
        if root_ts and found:
            # The root comes first even after it became a tombstone.
            found.sort(key=lambda message: message["ts"] != root_ts)
        return {"messages": [self.core.shown(channel, m) for m in found]}

    def _mark_read(self, user: User, channel: Channel) -> None:
        roots = self.core.state.roots(channel.id)
        if roots:
            self.core.state.read_marks[f"{user.id}:{channel.id}"] = roots[-1]["ts"]

    # -- acting

    async def _post(self, user: User, body: Json) -> Json:
        channel = self._channel(user, body["channel"])
        thread_ts = body.get("thread_ts") or None
        try:
            given = body.get("files") or []  # `[{"name", "data": base64}]`
            files = {str(file["name"]): base64.b64decode(file["data"], validate=True) for file in given}
        except ValueError as problem:
            text = f"a file's data is not base64: {problem}"
            raise WorkspaceError("invalid_arguments", text) from problem
        message = self.people.post(user, channel, str(body["text"]), thread_ts, files=files)
        if thread_ts is None:
            self._mark_read(user, channel)
        return {"ts": message["ts"]}

    async def _edit(self, user: User, body: Json) -> None:
        self.people.edit(user, self._channel(user, body["channel"]), body["ts"], str(body["text"]))

    async def _delete(self, user: User, body: Json) -> None:
        self.people.delete(user, self._channel(user, body["channel"]), body["ts"])

    async def _react(self, user: User, body: Json) -> None:
        """Add the reaction, or take it back when it is there already."""
        self.people.toggle(user, self._channel(user, body["channel"]), body["ts"], str(body["name"]))

    async def _read(self, user: User, body: Json) -> None:
        self._mark_read(user, self._channel(user, body["channel"]))
        self.core.changes.touch()

    async def _action(self, user: User, body: Json) -> Json:
        values = (body.get("state") or {}).get("values")
        wanted = {"action_id": body["action_id"], "block_id": body.get("block_id")}
        pressed = self.interactions
        home = self.core.state.homes.get(user.id)
        if not body.get("view_id"):
            channel = self._channel(user, body["channel"])
            message = pressed.visible(user, channel, body["message_ts"])
            found = elements.find(message.get("blocks", []), **wanted)
            at = await pressed.press(user, channel, message, found, _entry(found[1], body), values)
        elif home is not None and body["view_id"] == home["id"]:
            found = elements.find(home["blocks"], **wanted)
            at = await pressed.press_in_home(user, found, _entry(found[1], body), values)
        else:
            view = self.people.view(user, body["view_id"])
            found = elements.find(view.body["blocks"], **wanted)
            at = await pressed.press_in_view(user, view, found, _entry(found[1], body), values)
        return {"action_ts": at}

    async def _slash(self, user: User, body: Json) -> Json:
        channel = self._channel(user, body["channel"])
        answer = await self.interactions.slash(user, channel, body["command"], str(body.get("text", "")))
        return {"response": answer} if answer else {}

    async def _shortcut(self, user: User, body: Json) -> None:
        if not body.get("message_ts"):
            await self.interactions.shortcut(user, body["callback_id"])
            return
        channel = self._channel(user, body["channel"])
        message = self.interactions.visible(user, channel, body["message_ts"])
        await self.interactions.message_shortcut(user, channel, message, body["callback_id"])

    async def _open_home(self, user: User, body: Json) -> None:
        self.interactions.open_home(user, "messages" if body.get("tab") == "messages" else "home")

    async def _stop(self, user: User, body: Json) -> None:
        self.interactions.stop_session(user, self._channel(user, body["channel"]), str(body["thread_ts"]))

    async def _submit(self, user: User, body: Json) -> Json:
        view = self.people.view(user, body["view_id"])
        return await self.interactions.submit(user, view, body.get("values") or {})

    # -- news

    def _pass_on(self, push: Push | None) -> None:
        if push is None:
            return
        for queue, user_id in self._queues.items():
            if push.to is None or user_id in push.to:
                queue.put_nowait(push.body)

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        try:
            user = self._user(request.query.get("as"))
        except WorkspaceError as problem:
            return _refused(problem)
        socket = web.WebSocketResponse(heartbeat=30)
        await socket.prepare(request)
        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        self._queues[queue] = user.id

        async def send() -> None:
            with contextlib.suppress(ConnectionError, RuntimeError):
                while (body := await queue.get()) is not None:
                    await socket.send_str(json.dumps(body))
                await socket.close()

        sender = asyncio.create_task(send())
        try:
            status = {"type": "socket_status", "connected_sockets": len(self.core.sockets.connections)}
            queue.put_nowait(status)
            async for message in socket:
                if message.type is WSMsgType.ERROR:
                    break
        finally:
            del self._queues[queue]
            sender.cancel()
        return socket

    async def close(self) -> None:
        """End the pages' sockets."""
        for queue in list(self._queues):
            queue.put_nowait(None)


def _person(user: User) -> Json:
    names = ("id", "name", "real_name", "title", "is_bot", "deleted", "initials", "color")
    told = {name: getattr(user, name) for name in names}
    return {**told, "is_restricted": user.is_restricted or user.is_ultra_restricted}


def _entry(element: Json, body: Json) -> Json:
    """The value object of a pressed or changed element, from the fields the page sent beside its ids."""
    if element["type"] == "button":
        return {"type": "button"}
    field = elements.VALUE_FIELDS[element["type"]]
    return elements.entry_for(element, body.get(field, body.get("value")))


def _refused(problem: WorkspaceError) -> web.Response:
    status = 200 if isinstance(problem, NotAcknowledged) else 400
    return web.json_response({"ok": False, "error": problem.error, "text": problem.text}, status=status)
