"""People whom a command names are looked up in Slack before anything is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.cli.identities import unchecked
from bot.config.settings import Settings, load_settings
from bot.terminal.console import UsageError
from tests.support.acting import Workspace
from tests.support.workspace import running_workspace


def settings_for(workspace: Workspace, tmp_path: Path, **more: str) -> Settings:
    """The settings of a command in this workspace."""
    environ = {"SLACK_BOT_TOKEN": workspace.bot_token, "SLACK_API_URL": workspace.api_url, **more}
    return load_settings(environ, cwd=tmp_path)


async def test_somebody_whom_slack_does_not_know_is_refused(tmp_path: Path) -> None:
    """By id and by address; who is there passes, and names of this machine are not Slack's to know."""
    async with running_workspace() as workspace:
        settings = settings_for(workspace, tmp_path)
        for there in ("U0LOCALBEN", "ben@example.com", "local:eve", "requester"):
            assert await unchecked(settings, there) is None, there
        for nobody in ("U0NOBODY", "nobody@example.com"):
            with pytest.raises(UsageError, match=f"No Slack user matches {nobody}"):
                await unchecked(settings, nobody)


async def test_where_slack_cannot_be_asked_that_is_said(tmp_path: Path) -> None:
    """Without a token, and where nothing listens, it is not known whether there is such a person."""
    assert await unchecked(load_settings({}, cwd=tmp_path), "U0BEN") == "SLACK_BOT_TOKEN is not set"
    async with running_workspace() as workspace:
        settings = settings_for(workspace, tmp_path)
    assert await unchecked(settings, "U0BEN")
