"""Fixtures: a workspace, a Bolt app connected to it, a client of its Web API."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from tests.support.acting import Workspace
from tests.support.workspace import RunningApp, client_of, running_app, running_workspace


@pytest.fixture
async def workspace() -> AsyncIterator[Workspace]:
    """A new workspace with the default people and channels."""
    async with running_workspace() as started:
        yield started


@pytest.fixture
async def bolt(workspace: Workspace) -> AsyncIterator[RunningApp]:
    """A Bolt app that acknowledges everything and does nothing else."""
    async with running_app(workspace) as running:
        yield running


@pytest.fixture
def client(workspace: Workspace) -> AsyncWebClient:
    """The Web API with the app's bot token."""
    return client_of(workspace)
