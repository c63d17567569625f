"""Who the bot is, as Slack says at the start."""

from __future__ import annotations

import pytest

from bot.serve.identity import StartFailed, identify
from bot.wire.client import bot_client
from tests.support.workspace import running_workspace


async def test_a_start_without_the_apps_id_fails_when_slack_may_know_it_later() -> None:
    """A failure that passes ends the start; the database is not taken for that of an app without an id."""
    async with running_workspace() as workspace:
        bot = bot_client(workspace.bot_token, workspace.api_url)
        app = bot_client(workspace.app_token, workspace.api_url)
        workspace.faults.fail("bots.info", status=503)
        with pytest.raises(StartFailed):
            await identify(bot, app, workspace.api_url)
        assert (await identify(bot, app, workspace.api_url)).app_id == workspace.app_id


async def test_without_the_right_to_ask_for_it_the_apps_id_is_not_known() -> None:
    """An app that may not look up itself starts without its id."""
    async with running_workspace() as workspace:
        bot = bot_client(workspace.bot_token, workspace.api_url)
        app = bot_client(workspace.app_token, workspace.api_url)
        workspace.faults.fail("bots.info", error="missing_scope")
        assert (await identify(bot, app, workspace.api_url)).app_id is None
