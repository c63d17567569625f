"""agents.* and assistant.*: what only an app may do that is declared as an agent, which its scope `assistant:write`
shows."""

from __future__ import annotations

from typing import Any

from bot.workspace.elements import Suggestion
from bot.workspace.methods.call import Call
from bot.workspace.state import Json, SlackError

AGENT_SCOPE = "assistant:write"
STATUSES = ("active", "processing", "suspended", "closed")
_MOST_TITLE = 200
_MOST_PROMPTS = 4


def set_status(call: Call) -> Json:
    """agents.sessions.setStatus: the session is a thread; its title and who began it are taken the first time."""
    call.need(AGENT_SCOPE)
    status, title = call.required("status"), call.text("title")
    if status not in STATUSES or len(title) > _MOST_TITLE:
        raise SlackError(
            "invalid_arguments", f"status is one of {', '.join(STATUSES)}, a title has {_MOST_TITLE}"
        )
    channel = call.writable("channel_id")
    root = call.message(channel, "thread_ts", "thread_not_found")
    by = call.text("initiator_user_id")
    if by and by not in channel.members:
        raise SlackError("user_not_in_channel")
    session = {"title": title, "initiator": by, **(root.get("_session") or {}), "status": status}
    call.core.note(channel, root, {"_session": session})
    return {"status": status, "title": session["title"]}


def set_suggested_prompts(call: Call) -> Json:
    """assistant.threads.setSuggestedPrompts: chips in the direct messages. With `thread_ts` Slack takes it and shows
    nothing."""
    channel = call.channel("channel_id")
    prompts = call.json("prompts", "invalid_arguments")
    if not isinstance(prompts, list) or not all(map(_is_prompt, prompts)) or len(prompts) > _MOST_PROMPTS:
        raise SlackError("invalid_arguments", f"prompts are at most {_MOST_PROMPTS} of title and message")
    if not call.text("thread_ts"):
        others = [one for one in call.core.suggestions if one.channel != channel.id]
        made = [Suggestion(channel.id, prompt["title"], prompt["message"]) for prompt in prompts]
        call.core.suggestions = (*others, *made)
        call.core.changes.tell({"type": "channels"})
    return {}


def _is_prompt(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(name), str) and value[name] for name in ("title", "message")
    )
