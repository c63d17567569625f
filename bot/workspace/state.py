"""State of the workspace (people, channels, messages, views), and its errors: one root, and what a caller can do about
each. Plain values: no clock, no network.

Messages are kept in the shape in which Slack sends them (dictionaries), because that shape is the contract; everything
else is a dataclass. A message's `ts` is its identity inside a channel and strictly increases over the whole workspace,
so dictionaries keyed by `ts` are in order of time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

Json = dict[str, Any]

SCHEMA_VERSION = 1
MESSAGE_SHORTCUT: Json = {"name": "Run a flow", "type": "message", "callback_id": "sayso:run"}
COUNTERS = ("reply_count", "reply_users", "reply_users_count", "latest_reply")
"""Fields of a message with replies, which count them."""
COLORS = ("4a7c59", "8a5a9e", "b3623d", "2f6f9f", "a8485c", "6b7a2a", "3d7d80", "7d6148")


@dataclass(slots=True)
class User:
    """A person or a bot user. `is_stranger` marks somebody of another team (Slack Connect)."""

    id: str
    name: str
    real_name: str
    title: str = ""
    email: str = ""
    color: str = COLORS[0]
    team_id: str = ""
    is_bot: bool = False
    bot_id: str = ""
    app_id: str = ""
    deleted: bool = False
    is_admin: bool = False
    is_restricted: bool = False
    is_ultra_restricted: bool = False
    is_stranger: bool = False
    tz: str = "Europe/Madrid"

    @property
    def initials(self) -> str:
        """At most two letters that stand for the name on an avatar."""
        words = self.real_name.split() or [self.name]
        return "".join(word[0] for word in words[:2]).upper()


@dataclass(slots=True)
class Channel:
    """A conversation. For a direct message (`is_im`) `im_user` is the person on the other side of the bot."""

    id: str
    name: str
    topic: str = ""
    purpose: str = ""
    created: int = 0
    creator: str = ""
    is_private: bool = False
    is_im: bool = False
    is_archived: bool = False
    is_ext_shared: bool = False
    im_user: str = ""
    members: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """Slack's `channel_type`: channel, group or im."""
        if self.is_im:
            return "im"
        return "group" if self.is_private else "channel"


@dataclass(slots=True)
class Group:
    """A user group such as @sre."""

    id: str
    handle: str
    name: str
    users: list[str] = field(default_factory=list)


@dataclass(slots=True)
class View:
    """A modal that stands open for one person. `body` is what the app sent; `stack` is the id of its root."""

    id: str
    user_id: str
    body: Json
    hash: str
    root_id: str
    previous_id: str | None = None
    values: Json = field(default_factory=dict)


@dataclass(slots=True)
class State:
    """The whole workspace. Methods change it and return what changed; telling others is the caller's work."""

    team_id: str = "T0LOCAL01"
    team_name: str = "Local workspace"
    app_id: str = "A0LOCAL01"
    app_name: str = "sayso"
    bot_id: str = "B0LOCAL01"
    bot_user_id: str = "U0LOCALBOT"
    bot_token: str = "xoxb-local-workspace"
    app_token: str = "xapp-1-local-workspace"
    commands: list[str] = field(default_factory=lambda: ["/sayso"])
    shortcuts: list[Json] = field(default_factory=lambda: [dict(MESSAGE_SHORTCUT)])
    """Message shortcuts of the app, as in its manifest: `name`, `type` and `callback_id`."""
    users: dict[str, User] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    messages: dict[str, dict[str, Json]] = field(default_factory=dict)
    ephemerals: list[Json] = field(default_factory=list)
    views: dict[str, View] = field(default_factory=dict)
    homes: dict[str, Json] = field(default_factory=dict)
    files: dict[str, Json] = field(default_factory=dict)
    read_marks: dict[str, str] = field(default_factory=dict)
    last_micros: int = 0
    next_id: int = 1

    # -- names and numbers

    def new_id(self, prefix: str) -> str:
        """A fresh id that looks like Slack's: a letter that tells the kind, then capitals and digits."""
        self.next_id, number = self.next_id + 1, self.next_id
        return f"{prefix}0L{number:07d}"

    def new_ts(self, now: float) -> str:
        """A message timestamp (seconds.micros) at `now` (seconds since 1970), later than every earlier one."""
        self.last_micros = max(self.last_micros + 1, int(now * 1_000_000))
        return f"{self.last_micros // 1_000_000}.{self.last_micros % 1_000_000:06d}"

    # -- looking things up

    def user(self, key: str) -> User:
        """The person with this id, name or real name; WorkspaceError `user_not_found`."""
        if key in self.users:
            return self.users[key]
        wanted = key.lstrip("@").lower()
        for user in self.users.values():
            if wanted in (user.name.lower(), user.real_name.lower()):
                return user
        known = ", ".join(u.name for u in self.users.values())
        raise WorkspaceError("user_not_found", f"nobody is called {key!r} here (there are: {known})")

    def channel(self, key: str) -> Channel:
        """The conversation with this id or name; WorkspaceError `channel_not_found`."""
        if key in self.channels:
            return self.channels[key]
        names = {c.name: c for c in self.channels.values() if not c.is_im}
        wanted = key.lstrip("#").lower()
        if wanted not in names:
            known = ", ".join(names)
            raise WorkspaceError("channel_not_found", f"no channel {key!r} here (there are: {known})")
        return names[wanted]

    @property
    def bot_user(self) -> User:
        """The app's own bot user."""
        return self.users[self.bot_user_id]

    def im_between(self, user_id: str) -> Channel | None:
        """The direct message between this person and the app, when it exists."""
        found = (c for c in self.channels.values() if c.is_im and c.im_user == user_id)
        return next((c for c in found if self.bot_user_id in c.members), None)

    def open_im(self, user_id: str, now: float) -> Channel:
        """The direct message between this person and the app, made when missing."""
        found = self.im_between(user_id)
        if found is None:
            members = [user_id, self.bot_user_id]
            found = Channel(
                self.new_id("D"), "", is_im=True, im_user=user_id, members=members, created=int(now)
            )
            self.channels[found.id] = found
        return found

    # -- messages

    def message(self, channel_id: str, ts: str) -> Json | None:
        """The stored message itself (not a copy), or None."""
        return self.messages.get(channel_id, {}).get(ts)

    def add_message(self, channel_id: str, message: Json) -> Json:
        """Store a message under its `ts`; a reply is counted at its thread's root. Returns the stored one."""
        self.messages.setdefault(channel_id, {})[message["ts"]] = message
        root_ts = message.get("thread_ts")
        if root_ts and root_ts != message["ts"]:
            self._recount(channel_id, root_ts)
        return message

    def replace_message(self, channel_id: str, message: Json) -> None:
        """Put another version in the place of the message with the same `ts`."""
        self.messages[channel_id][message["ts"]] = message

    def remove_message(self, channel_id: str, ts: str) -> Json:
        """Delete a message and return it. A root that has replies leaves a tombstone, as in Slack."""
        gone = self.messages[channel_id].pop(ts)
        if gone.get("reply_count"):
            stone = {"type": "message", "subtype": "tombstone", "user": "USLACKBOT", "hidden": True}
            stone["text"] = "This message was deleted."
            stone.update({key: gone[key] for key in ("ts", "thread_ts", *COUNTERS) if key in gone})
            place = self.messages[channel_id]
            place[gone["ts"]] = stone
            self.messages[channel_id] = dict(sorted(place.items()))
        elif (root_ts := gone.get("thread_ts")) and root_ts != ts:
            self._recount(channel_id, root_ts)
        return gone

    def _recount(self, channel_id: str, root_ts: str) -> None:
        root = self.message(channel_id, root_ts)
        if root is None:
            return
        replies = [m for m in self.thread(channel_id, root_ts) if m["ts"] != root_ts]
        if not replies:
            for key in ("thread_ts", *COUNTERS):
                root.pop(key, None)
            return
        users = list(dict.fromkeys(m["user"] for m in replies if m.get("user")))
        root.update(
            thread_ts=root_ts,
            reply_count=len(replies),
            reply_users=users[:5],
            reply_users_count=len(users),
            latest_reply=replies[-1]["ts"],
        )

    def roots(self, channel_id: str) -> list[Json]:
        """Messages of the channel itself, oldest first: no replies, except those broadcast to the channel."""
        return [m for m in self.messages.get(channel_id, {}).values() if in_channel(m)]

    def thread(self, channel_id: str, root_ts: str) -> list[Json]:
        """The root and its replies, oldest first; empty when there is no such root."""
        stored = self.messages.get(channel_id, {})
        replies = [m for m in stored.values() if m.get("thread_ts") == root_ts and m["ts"] != root_ts]
        return [stored[root_ts], *replies] if root_ts in stored else replies

    # -- as JSON

    def to_json(self) -> Json:
        """Everything that should survive a restart, as plain JSON values."""
        return {"schema": SCHEMA_VERSION, **asdict(self)}


def in_channel(message: Json) -> bool:
    """True if a message shows in the channel itself rather than only in a thread."""
    thread_ts = message.get("thread_ts")
    return not thread_ts or thread_ts == message["ts"] or message.get("subtype") == "thread_broadcast"


def wire(message: Json, *, metadata: bool = False) -> Json:
    """A copy of a stored message as Slack sends it: private fields dropped, metadata only on demand."""
    sent = {key: value for key, value in message.items() if not key.startswith("_")}
    if not metadata:
        sent.pop("metadata", None)
    whole: Json = copied(sent)
    return whole


def copied(value: Any) -> Any:
    """A copy of JSON values that shares nothing with them that could change."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def state_from_json(document: Json) -> State:
    """The state that `State.to_json` wrote; WorkspaceError `bad_file` for any other document."""
    found = document.get("schema") if isinstance(document, dict) else None
    if found != SCHEMA_VERSION:
        raise WorkspaceError("bad_file", f"schema {found!r}, expected {SCHEMA_VERSION}")
    rest = {key: value for key, value in document.items() if key != "schema"}
    try:
        rest["users"] = {key: User(**value) for key, value in rest["users"].items()}
        rest["channels"] = {key: Channel(**value) for key, value in rest["channels"].items()}
        rest["groups"] = {key: Group(**value) for key, value in rest["groups"].items()}
        rest["views"] = {key: View(**value) for key, value in rest["views"].items()}
        return State(**rest)
    except (AttributeError, KeyError, TypeError) as problem:
        raise WorkspaceError("bad_file", f"not a saved workspace: {problem}") from problem


PEOPLE = (
    ("U0LOCALANA", "ana", "Ana Ruiz", "On call"),
    ("U0LOCALBEN", "ben", "Ben Okafor", "Team lead"),
    ("U0LOCALCLEO", "cleo", "Cleo Martin", "Support"),
    ("U0LOCALDEV", "dev", "Dev Rao", "SRE"),
)
CHANNELS = (
    ("C0LOCALOPS", "ops", "Day to day operations", True),
    ("C0LOCALREL", "releases", "What ships, and when", True),
    ("C0LOCALINC", "incidents", "When something burns", True),
    ("C0LOCALRND", "random", "Anything else; the app is not a member here", False),
)
CREATED = 1_790_000_000  # seconds since 1970; only shown as the channels' date of creation


def default_state() -> State:
    """A small team with the app installed: the default seed, in which Ana is the person to act as."""
    state = State()
    for number, (user_id, name, real_name, title) in enumerate(PEOPLE):
        email = f"{name}@example.com"
        state.users[user_id] = User(
            user_id, name, real_name, title, email, COLORS[number % len(COLORS)], state.team_id
        )
    state.users["U0LOCALBEN"].is_admin = True
    state.users[state.bot_user_id] = User(
        id=state.bot_user_id,
        name=state.app_name,
        real_name=state.app_name,
        title="App",
        color="3b3f8f",
        team_id=state.team_id,
        is_bot=True,
        bot_id=state.bot_id,
        app_id=state.app_id,
    )
    state.groups["S0LOCALSRE"] = Group("S0LOCALSRE", "sre", "Site reliability", ["U0LOCALBEN", "U0LOCALDEV"])
    people = [user_id for user_id, *_ in PEOPLE]
    for channel_id, name, topic, with_bot in CHANNELS:
        members = [*people, state.bot_user_id] if with_bot else list(people)
        state.channels[channel_id] = Channel(
            channel_id, name, topic, created=CREATED, creator="U0LOCALBEN", members=members
        )
    return state


# --- errors ------------------------------------------------------------------------------------------------


class WorkspaceError(Exception):
    """Something the local workspace refused. `error` is a short code as Slack would name it, `text` says why, `extra` are
    further fields of the answer."""

    def __init__(self, error: str, text: str = "", **extra: Any) -> None:
        self.error = error
        self.text = text or error.replace("_", " ")
        self.extra = extra
        super().__init__(f"{error}: {self.text}")

    def body(self) -> Json:
        """The JSON body of a Web API refusal, which has HTTP status 200."""
        return {"ok": False, "error": self.error, **self.extra}


class SlackError(WorkspaceError):
    """A Web API refusal."""


class NotAcknowledged(WorkspaceError):
    """The app did not take an interaction: `operation_timeout` (no answer in time) or `dispatch_failed` (no
    socket to send it to). Slack does not deliver interactions again: the person has to try once more."""


def invalid(pointer_messages: list[str], error: str = "invalid_blocks") -> SlackError:
    """Slack's answer to arguments that break a schema: the messages name the place as a JSON pointer."""
    return SlackError(
        error,
        "; ".join(pointer_messages),
        errors=pointer_messages,
        response_metadata={"messages": [f"[ERROR] {message}" for message in pointer_messages]},
    )
