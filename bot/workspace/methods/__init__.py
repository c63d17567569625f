"""The Web API methods: plain functions from a `Call` to the fields of the answer, and the table of them.

They raise SlackError for what Slack would refuse. They know nothing of HTTP; `bot.workspace.webapi` does.
"""

from __future__ import annotations

from collections.abc import Callable

from bot.workspace.methods import chat, conversations, files, people, rest, streams
from bot.workspace.methods.call import Call
from bot.workspace.state import Json

METHODS: dict[str, Callable[[Call], Json]] = {
    "api.test": rest.api_test,
    "apps.connections.open": rest.connections_open,
    "auth.test": people.auth_test,
    "bots.info": people.bots_info,
    "chat.appendStream": streams.append,
    "chat.delete": chat.delete,
    "chat.getPermalink": chat.get_permalink,
    "chat.postEphemeral": chat.post_ephemeral,
    "chat.postMessage": chat.post_message,
    "chat.startStream": streams.start,
    "chat.stopStream": streams.stop,
    "chat.update": chat.update,
    "conversations.history": conversations.history,
    "conversations.info": conversations.info,
    "conversations.join": conversations.join,
    "conversations.list": conversations.list_all,
    "conversations.members": conversations.members,
    "conversations.open": conversations.open_im,
    "conversations.replies": conversations.replies,
    "files.completeUploadExternal": files.complete_upload,
    "files.getUploadURLExternal": files.get_upload_url,
    "files.info": files.info,
    "reactions.add": rest.reactions_add,
    "reactions.get": rest.reactions_get,
    "reactions.remove": rest.reactions_remove,
    "team.info": people.team_info,
    "usergroups.list": people.groups_list,
    "usergroups.users.list": people.group_users,
    "users.conversations": conversations.list_own,
    "users.info": people.users_info,
    "users.list": people.users_list,
    "users.lookupByEmail": people.lookup_by_email,
    "views.open": rest.views_open,
    "views.publish": rest.views_publish,
    "views.push": rest.views_push,
    "views.update": rest.views_update,
}
