"""What is acknowledged to Slack: what was stored, and nothing else."""

from __future__ import annotations

from typing import Any

from slack_bolt.request.async_request import AsyncBoltRequest

from bot import inbound
from bot.app import SlackApp
from bot.outbound.modals import Modals
from bot.slack_api import app_client, bot_client
from bot.views.service import Views
from bot.workspace import Workspace, payloads
from engine.engine import utc_now
from engine.storage.memory import MemoryStore
from engine.storage.writer import Writer
from tests.support.workspace import running_workspace


async def _unasked(ask: inbound.Ask) -> dict[str, Any]:
    raise AssertionError(f"nobody asked for {ask.word}")


def _mention(workspace: Workspace) -> dict[str, Any]:
    """The payload of a message that mentions the bot."""
    channel = workspace.core.state.channel("ops")
    ana = workspace.core.state.user("ana")
    message = workspace.core.post(ana, channel, f"<@{workspace.bot_user_id}> deploy")
    event = payloads.message_event(channel, message)
    return dict(payloads.event_callback(workspace.core.state, event, "Ev1", 1_790_000_000.0))


async def test_a_payload_is_stored_before_it_is_acknowledged_while_slack_refuses_every_call() -> None:
    """A message that arrives while Slack answers no call of the Web API is stored, and only then acknowledged."""
    store = MemoryStore()
    writer = Writer(store)
    writer.start()
    async with running_workspace() as workspace:
        client = bot_client(workspace.bot_token, workspace.api_url)
        slack = SlackApp(
            client,
            app_client(workspace.app_token, workspace.api_url),
            app_token=workspace.app_token,
            home=inbound.Home(workspace.team_id, workspace.app_id, workspace.bot_user_id),
            writer=writer,
            now=utc_now,
            answer=_unasked,
            taken=lambda: None,
            views=Views(Modals(client), [], writer, utc_now),
            connections=0,
        )
        workspace.faults.fail("auth.test", times=5, error="internal_error")
        body = _mention(workspace)
        answer = await slack.app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
    assert answer.status == 200
    assert [row.kind for row in store.inbox()] == [inbound.MESSAGE]
    writer.close()
