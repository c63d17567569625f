"""Checks that a person named in a command exists, as far as possible from here."""

from __future__ import annotations

import asyncio
import re

from slack_sdk.errors import SlackApiError

from bot.config.settings import Settings
from bot.terminal.console import UsageError
from bot.wire.client import bot_client, code_of, describe

SECONDS = 5.0
"""Seconds to wait for Slack."""
_IN_SLACK = re.compile(r"[UW][A-Z0-9]{2,}|[^\s@]+@[^\s@]+")
_NOBODY = ("user_not_found", "users_not_found", "user_not_visible")


async def unchecked(settings: Settings, to: str) -> str | None:
    """Ask Slack for a person by id or e-mail address: None where there is nothing to ask, or the person is there, else
    why that is not known. Raises `UsageError` for somebody whom Slack does not know, or who has left."""
    if not _IN_SLACK.fullmatch(to):
        return None
    if not settings.bot_token:
        return "SLACK_BOT_TOKEN is not set"
    try:
        async with asyncio.timeout(SECONDS):
            client = bot_client(settings.bot_token, settings.api_url)
            found = await (client.users_lookupByEmail(email=to) if "@" in to else client.users_info(user=to))
            user = dict(found["user"])
    except TimeoutError:
        return f"Slack at {settings.api_url} did not answer within {SECONDS:g} s"
    except Exception as error:
        if isinstance(error, SlackApiError) and code_of(error) in _NOBODY:
            raise UsageError(f"No Slack user matches {to}.") from error
        return describe(error, token="SLACK_BOT_TOKEN", api_url=settings.api_url)
    if user.get("deleted") or user.get("is_bot"):
        what = "a deactivated account" if user.get("deleted") else "a bot"
        raise UsageError(f"{to} is {what}, which cannot answer; nothing was changed.")
    return None
