"""conversations.*: what the app may know of channels, and their messages page by page. users.*, usergroups.*,
team.*, bots.*, auth.*: who is here.
"""

from __future__ import annotations

from collections.abc import Callable

from bot.workspace.methods.call import NEW, OLD, PREFIX, Call, micros
from bot.workspace.state import Channel, Group, Json, SlackError, User, wire

KINDS = {"public_channel": "channel", "private_channel": "group", "im": "im"}


def channel_object(call: Call, channel: Channel) -> Json:
    """A conversation as Slack describes it to this app."""
    common: Json = {
        "id": channel.id,
        "created": channel.created,
        "is_archived": channel.is_archived,
        "is_im": channel.is_im,
        "is_mpim": False,
        "is_ext_shared": channel.is_ext_shared,
        "is_shared": channel.is_ext_shared,
        "is_org_shared": False,
        "context_team_id": call.core.state.team_id,
    }
    if channel.is_im:
        deleted = call.core.state.users[channel.im_user].deleted
        return {**common, "user": channel.im_user, "is_user_deleted": deleted, "priority": 0}
    return {
        **common,
        "name": channel.name,
        "name_normalized": channel.name,
        "is_channel": not channel.is_private,
        "is_group": channel.is_private,
        "is_private": channel.is_private,
        "is_general": False,
        "is_member": call.is_member(channel),
        "creator": channel.creator,
        "topic": {"value": channel.topic, "creator": channel.creator, "last_set": channel.created},
        "purpose": {"value": channel.purpose, "creator": channel.creator, "last_set": channel.created},
    }


def info(call: Call) -> Json:
    """conversations.info"""
    channel = call.channel(scope="read")
    described = channel_object(call, channel)
    if call.flag("include_num_members"):
        described["num_members"] = len(channel.members)
    return {"channel": described}


def list_all(call: Call) -> Json:
    """conversations.list"""
    return _listed(call, lambda channel: not channel.is_private or call.is_member(channel))


def list_own(call: Call) -> Json:
    """users.conversations: those the app (or `user`) is a member of."""
    user_id = call.text("user") or call.core.state.bot_user_id
    return _listed(call, lambda channel: user_id in channel.members)


def _listed(call: Call, is_shown: Callable[[Channel], bool]) -> Json:
    kinds = []
    for name in (call.text("types") or "public_channel").split(","):
        if name.strip() not in (*KINDS, "mpim"):
            raise SlackError("invalid_types", f"type {name!r}")
        if name.strip() in KINDS:
            kinds.append(KINDS[name.strip()])
    for kind in kinds:
        call.need(f"{PREFIX[kind]}:read")
    found = [c for c in call.core.state.channels.values() if c.kind in kinds and is_shown(c)]
    if call.flag("exclude_archived"):
        found = [c for c in found if not c.is_archived]
    page, cursor = call.page([c for c in found if not c.is_im or call.is_member(c)], 100, 1000)
    return {
        "channels": [channel_object(call, c) for c in page],
        "response_metadata": {"next_cursor": cursor},
    }


def members(call: Call) -> Json:
    """conversations.members"""
    page, cursor = call.page(call.channel(scope="read").members, 100, 1000)
    return {"members": page, "response_metadata": {"next_cursor": cursor}}


def history(call: Call) -> Json:
    """conversations.history: the channel's own messages, newest first."""
    channel = call.channel(scope="history")
    call.must_be_member(channel)
    found = [m for m in reversed(call.core.state.roots(channel.id)) if _is_between(call, m)]
    page, cursor = call.page(found, 100, 999)
    return {**_messages(call, page, cursor), "pin_count": 0}


def replies(call: Call) -> Json:
    """conversations.replies: the root, which is on every page, and the replies, oldest first."""
    channel = call.channel(scope="history")
    call.must_be_member(channel)
    ts = call.required("ts")
    asked = call.core.state.message(channel.id, ts)
    if asked is None:
        raise SlackError("thread_not_found")
    if asked.get("thread_ts", ts) != ts:
        return _messages(call, [asked], "")
    found = [m for m in call.core.state.thread(channel.id, ts) if m["ts"] != ts and _is_between(call, m)]
    page, cursor = call.page(found, 1000, 1000)
    return _messages(call, [asked, *page], cursor)


def _is_between(call: Call, message: Json) -> bool:
    """True if the message lies between `oldest` and `latest`; the limits themselves only if `inclusive`."""
    at, oldest, latest = micros(message["ts"]), call.moment("oldest", OLD), call.moment("latest", NEW)
    return oldest <= at <= latest if call.flag("inclusive") else oldest < at < latest


def _messages(call: Call, page: list[Json], cursor: str) -> Json:
    metadata = call.flag("include_all_metadata")
    answer: Json = {"messages": [wire(m, metadata=metadata) for m in page], "has_more": bool(cursor)}
    if cursor:
        answer["response_metadata"] = {"next_cursor": cursor}
    return answer


def open_im(call: Call) -> Json:
    """conversations.open: the direct message with one person."""
    state = call.core.state
    if call.text("channel"):
        return {"channel": {"id": call.channel().id}}
    users = [user for user in call.required("users", "users_list_not_supplied").split(",") if user]
    if len(users) != 1:
        raise SlackError("not_implemented_locally", "the local workspace has no group direct messages")
    if users[0] not in state.users:
        raise SlackError("user_not_found")
    existed = state.im_between(users[0]) is not None
    channel = state.open_im(users[0], call.core.clock())
    call.core.changes.tell({"type": "channels"})
    described = channel_object(call, channel) if call.flag("return_im") else {"id": channel.id}
    return {"channel": described, "no_op": existed, "already_open": existed}


def join(call: Call) -> Json:
    """conversations.join: only public channels."""
    channel = call.channel()
    if channel.is_private or channel.is_im:
        raise SlackError("method_not_supported_for_channel_type")
    if channel.is_archived:
        raise SlackError("is_archived")
    call.core.join(call.bot, channel)
    return {"channel": channel_object(call, channel)}


# --- people ------------------------------------------------------------------------------------------------


def user_object(call: Call, user: User) -> Json:
    """A person as Slack describes them; of a deactivated one little is told. The profile has the e-mail address only with
    `users:read.email`. Display names are empty, so clients (the page too) show the real one."""
    profile: Json = {
        "title": user.title,
        "real_name": user.real_name,
        "real_name_normalized": user.real_name,
        "display_name": "",
        "display_name_normalized": "",
        "team": user.team_id,
    }
    if user.email and "users:read.email" in call.granted:
        profile["email"] = user.email
    if user.is_bot:
        profile.update(api_app_id=user.app_id, bot_id=user.bot_id)
    described: Json = {
        "id": user.id,
        "team_id": user.team_id,
        "name": user.name,
        "deleted": user.deleted,
        "is_bot": user.is_bot,
        "is_app_user": False,
        "profile": profile,
        "updated": 0,
    }
    if user.is_stranger:
        described["is_stranger"] = True
    if user.deleted:
        return described
    return {
        **described,
        "color": user.color,
        "real_name": user.real_name,
        "tz": user.tz,
        "tz_label": user.tz,
        "tz_offset": 0,
        "is_admin": user.is_admin,
        "is_owner": False,
        "is_primary_owner": False,
        "is_restricted": user.is_restricted or user.is_ultra_restricted,
        "is_ultra_restricted": user.is_ultra_restricted,
        "is_email_confirmed": True,
        "who_can_share_contact_card": "EVERYONE",
    }


def auth_test(call: Call) -> Json:
    """auth.test: which app in which workspace this token belongs to. The address says it is not Slack."""
    state = call.core.state
    return {
        "url": f"{call.core.base_url}/not-slack/",
        "team": state.team_name,
        "user": state.bot_user.name,
        "team_id": state.team_id,
        "user_id": state.bot_user_id,
        "bot_id": state.bot_id,
        "app_id": state.app_id,
        "is_enterprise_install": False,
    }


def team_info(call: Call) -> Json:
    """team.info"""
    state = call.core.state
    team = {"id": state.team_id, "name": state.team_name, "domain": "local-workspace", "email_domain": ""}
    return {"team": {**team, "url": f"{call.core.base_url}/", "icon": {"image_default": True}}}


def bots_info(call: Call) -> Json:
    """bots.info"""
    for user in call.core.state.users.values():
        if user.is_bot and user.bot_id == call.required("bot", "bot_not_found"):
            bot = {"id": user.bot_id, "deleted": user.deleted, "name": user.name, "updated": 0}
            return {"bot": {**bot, "app_id": user.app_id, "user_id": user.id, "icons": {}}}
    raise SlackError("bot_not_found")


def users_info(call: Call) -> Json:
    """users.info"""
    return {"user": user_object(call, call.user())}


def users_list(call: Call) -> Json:
    """users.list"""
    page, cursor = call.page(list(call.core.state.users.values()), 200, 1000)
    return {
        "members": [user_object(call, user) for user in page],
        "cache_ts": int(call.core.clock()),
        "response_metadata": {"next_cursor": cursor},
    }


def lookup_by_email(call: Call) -> Json:
    """users.lookupByEmail"""
    email = call.required("email", "users_not_found").lower()
    for user in call.core.state.users.values():
        if user.email.lower() == email and not user.deleted:
            return {"user": user_object(call, user)}
    raise SlackError("users_not_found")


def group_object(call: Call, group: Group, with_users: bool) -> Json:
    """A user group as Slack describes it."""
    described: Json = {
        "id": group.id,
        "team_id": call.core.state.team_id,
        "is_usergroup": True,
        "name": group.name,
        "description": "",
        "handle": group.handle,
        "is_external": False,
        "date_create": 0,
        "date_update": 0,
        "date_delete": 0,
        "auto_type": None,
        "created_by": "",
        "updated_by": "",
        "deleted_by": None,
        "prefs": {"channels": [], "groups": []},
        "user_count": len(group.users),
    }
    if with_users:
        described["users"] = list(group.users)
    return described


def groups_list(call: Call) -> Json:
    """usergroups.list"""
    with_users = call.flag("include_users")
    return {"usergroups": [group_object(call, g, with_users) for g in call.core.state.groups.values()]}


def group_users(call: Call) -> Json:
    """usergroups.users.list"""
    group = call.core.state.groups.get(call.required("usergroup", "no_such_subteam"))
    if group is None:
        raise SlackError("no_such_subteam")
    return {"users": list(group.users)}
