"""Identity of the app, as Slack reports it: the tokens, the scopes and the names that a start checks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bot.wire.client import Permanent, classify, describe
from bot.wire.manifest import Report, is_agent, needed_by, scope_report
from engine.flow import Flow
from engine.language.errors import SaysoError

log = logging.getLogger("sayso")

START_SECONDS = 12.0
"""Seconds in which a start detects that Slack is unreachable or does not accept the tokens."""


class StartFailed(SaysoError):
    """The bot cannot start; the message gives the reason and the remedy."""

    code = "start_failed"


@dataclass(frozen=True)
class Identity:
    """Identity of this app, as Slack reports it."""

    team_id: str
    team: str
    bot_user_id: str
    bot_user: str
    app_id: str | None
    report: Report
    agent: bool = False
    """True if the app is a Slack agent."""


async def identify(bot: Any, app: Any, api_url: str, flows: Sequence[Flow] = ()) -> Identity:
    """Check both tokens and the scopes. Raises `StartFailed` within `START_SECONDS`."""
    try:
        async with asyncio.timeout(START_SECONDS):
            who = await _ask(bot.auth_test(), "SLACK_BOT_TOKEN", api_url)
            await _ask(app.apps_connections_open(app_token=app.token), "SLACK_APP_TOKEN", api_url)
            app_id = await _app_id(bot, who.get("bot_id"), api_url)
    except TimeoutError:
        raise StartFailed(
            f"Slack at {api_url} did not answer within {START_SECONDS:g} s. Check the network, a proxy, and SLACK_API_URL."
        ) from None
    bot.workspace_url = str(who.get("url") or "")
    headers = {name.lower(): value for name, value in (who.headers or {}).items()}
    scopes = headers.get("x-oauth-scopes")
    report = scope_report(scopes, needed_by(flows))
    names = who["team_id"], who.get("team") or "", who["user_id"], who.get("user") or ""
    return Identity(*names, app_id, report, is_agent(scopes))


async def _ask(call: Any, token: str, api_url: str) -> Any:
    try:
        return await call
    except Exception as error:
        raise StartFailed(describe(error, token=token, api_url=api_url)) from error


async def _app_id(bot: Any, bot_id: str | None, api_url: str) -> str | None:
    """The app's id; None where the right to ask is missing. Any other failure ends the start: without its app a
    database would look like somebody else's."""
    try:
        return str((await bot.bots_info(bot=bot_id))["bot"]["app_id"])
    except Exception as error:
        if isinstance(classify(error), Permanent):
            log.info("the app's id could not be looked up: %s", error)
            return None
        raise StartFailed(describe(error, token="SLACK_BOT_TOKEN", api_url=api_url)) from error
