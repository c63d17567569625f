"""The Web API methods: plain functions from a `Call` to the fields of the answer, and the table of them.

They raise SlackError for what Slack would refuse. They know nothing of HTTP; `bot.workspace.server` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bot.workspace.methods import agents, call, chat, conversations, files
from bot.workspace.methods.call import Call
from bot.workspace.state import Json


class Method(NamedTuple):
    """A method, and its scope; empty if that depends on the conversation, or none is needed."""

    answer: Callable[[Call], Json]
    scope: str = ""


METHODS: dict[str, Method] = {
    "agents.sessions.setStatus": Method(agents.set_status, "chat:write"),
    "api.test": Method(call.api_test),
    "apps.connections.open": Method(call.connections_open, "connections:write"),
    "assistant.threads.setSuggestedPrompts": Method(agents.set_suggested_prompts, agents.AGENT_SCOPE),
    "auth.test": Method(conversations.auth_test),
    "bots.info": Method(conversations.bots_info, "users:read"),
    "chat.delete": Method(chat.delete, "chat:write"),
    "chat.getPermalink": Method(chat.get_permalink),
    "chat.postEphemeral": Method(chat.post_ephemeral, "chat:write"),
    "chat.postMessage": Method(chat.post_message, "chat:write"),
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
    "reactions.add": Method(call.reactions_change, "reactions:write"),
    "reactions.get": Method(call.reactions_get, "reactions:read"),
    "reactions.remove": Method(call.reactions_change, "reactions:write"),
    "team.info": Method(conversations.team_info, "team:read"),
    "usergroups.list": Method(conversations.groups_list, "usergroups:read"),
    "usergroups.users.list": Method(conversations.group_users, "usergroups:read"),
    "users.conversations": Method(conversations.list_own),
    "users.info": Method(conversations.users_info, "users:read"),
    "users.list": Method(conversations.users_list, "users:read"),
    "users.lookupByEmail": Method(conversations.lookup_by_email, "users:read.email"),
    "views.open": Method(call.views_open),
    "views.publish": Method(call.views_publish),
    "views.push": Method(call.views_open),
    "views.update": Method(call.views_update),
}
