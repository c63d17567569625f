"""The Web API methods: plain functions from a `Call` to the fields of the answer, and the table of them.

They raise SlackError for what Slack would refuse. They know nothing of HTTP; `bot.workspace.webapi` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bot.workspace.methods import chat, conversations, files, people, rest
from bot.workspace.methods.call import Call
from bot.workspace.state import Json


class Method(NamedTuple):
    """What a method does, and the scope that it needs; empty where that depends on the conversation, or is none."""

    answer: Callable[[Call], Json]
    scope: str = ""


METHODS: dict[str, Method] = {
    "api.test": Method(rest.api_test),
    "apps.connections.open": Method(rest.connections_open, "connections:write"),
    "auth.test": Method(people.auth_test),
    "bots.info": Method(people.bots_info, "users:read"),
    "chat.appendStream": Method(chat.append, "chat:write"),
    "chat.delete": Method(chat.delete, "chat:write"),
    "chat.getPermalink": Method(chat.get_permalink),
    "chat.postEphemeral": Method(chat.post_ephemeral, "chat:write"),
    "chat.postMessage": Method(chat.post_message, "chat:write"),
    "chat.startStream": Method(chat.start, "chat:write"),
    "chat.stopStream": Method(chat.stop, "chat:write"),
    "chat.update": Method(chat.update, "chat:write"),
    "conversations.history": Method(conversations.history),
    "conversations.info": Method(conversations.info),
    "conversations.join": Method(conversations.join, "channels:join"),
    "conversations.list": Method(conversations.list_all),
    "conversations.members": Method(conversations.members),
    "conversations.open": Method(conversations.open_im, "im:write"),
    "conversations.replies": Method(conversations.replies),
    "files.completeUploadExternal": Method(files.complete_upload, "files:write"),
    "files.getUploadURLExternal": Method(files.get_upload_url, "files:write"),
    "files.info": Method(files.info, "files:read"),
    "reactions.add": Method(rest.reactions_add, "reactions:write"),
    "reactions.get": Method(rest.reactions_get, "reactions:read"),
    "reactions.remove": Method(rest.reactions_remove, "reactions:write"),
    "team.info": Method(people.team_info, "team:read"),
    "usergroups.list": Method(people.groups_list, "usergroups:read"),
    "usergroups.users.list": Method(people.group_users, "usergroups:read"),
    "users.conversations": Method(conversations.list_own),
    "users.info": Method(people.users_info, "users:read"),
    "users.list": Method(people.users_list, "users:read"),
    "users.lookupByEmail": Method(people.lookup_by_email, "users:read.email"),
    "views.open": Method(rest.views_open),
    "views.publish": Method(rest.views_publish),
    "views.push": Method(rest.views_push),
    "views.update": Method(rest.views_update),
}
