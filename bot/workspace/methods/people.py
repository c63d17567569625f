"""users.*, usergroups.*, team.*, bots.*, auth.*: who is here."""

from __future__ import annotations

from bot.workspace.errors import SlackError
from bot.workspace.methods.call import Call
from bot.workspace.state import Group, Json, User


def user_object(call: Call, user: User) -> Json:
    """A person as Slack describes them; of a deactivated one little is told."""
    described: Json = {
        "id": user.id,
        "team_id": user.team_id,
        "name": user.name,
        "deleted": user.deleted,
        "is_bot": user.is_bot,
        "is_app_user": False,
        "profile": _profile(call, user),
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


def _profile(call: Call, user: User) -> Json:
    """What people say of themselves; the e-mail address only with `users:read.email`. Nobody chose a display name,
    so clients (the page too) show the real one."""
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
    return profile


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
