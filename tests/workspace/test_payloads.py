"""The shapes of what the app receives, against expectations written by hand from Slack's documentation."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from slack_bolt.async_app import AsyncApp

from tests.support.acting import Workspace
from tests.support.workspace import (
    BareSocket,
    Json,
    RunningApp,
    actions,
    bare_socket,
    button,
    client_of,
    modal,
    running_app,
    section,
    text_input,
)

TS = re.compile(r"^\d{10}\.\d{6}$")


async def _mention(workspace: Workspace, socket: BareSocket) -> tuple[str, dict[str, Json]]:
    """A posted mention and its two envelopes by the type of their event."""
    ts = await workspace.post("ana", "ops", "@sayso run deploy")
    found = {}
    for _ in range(2):
        envelope = await socket.event()
        await socket.ack(envelope)
        found[envelope["payload"]["event"]["type"]] = envelope
    return ts, found


async def test_an_event_envelope_has_its_retry_fields(workspace: Workspace) -> None:
    """An envelope of an event: id, type, payload, no answer accepted, attempt 0 without a reason."""
    async with bare_socket(workspace) as socket:
        _, found = await _mention(workspace, socket)
    envelope = found["app_mention"]
    assert set(envelope) == {
        "envelope_id",
        "type",
        "payload",
        "accepts_response_payload",
        "retry_attempt",
        "retry_reason",
    }
    assert envelope["type"] == "events_api"
    assert envelope["accepts_response_payload"] is False
    assert (envelope["retry_attempt"], envelope["retry_reason"]) == (0, "")


async def test_event_callback_and_app_mention(workspace: Workspace) -> None:
    """The wrapper names team, app, event id and time; the mention has user, text, ts, channel, event_ts."""
    async with bare_socket(workspace) as socket:
        ts, found = await _mention(workspace, socket)
    payload = found["app_mention"]["payload"]
    assert " ".join(sorted(payload)) == (
        "api_app_id authorizations context_enterprise_id context_team_id event event_context event_id event_time "
        "is_ext_shared_channel team_id token type"
    )
    assert payload["type"] == "event_callback"
    assert payload["team_id"] == workspace.team_id
    assert payload["api_app_id"] == workspace.app_id
    assert payload["event_id"].startswith("Ev")
    assert isinstance(payload["event_time"], int)
    assert payload["is_ext_shared_channel"] is False
    assert payload["authorizations"] == [
        {
            "enterprise_id": None,
            "team_id": workspace.team_id,
            "user_id": workspace.bot_user_id,
            "is_bot": True,
            "is_enterprise_install": False,
        }
    ]
    client_msg_id = payload["event"].pop("client_msg_id")
    assert isinstance(client_msg_id, str)
    assert payload["event"] == {
        "type": "app_mention",
        "user": "U0LOCALANA",
        "text": "<@U0LOCALBOT> run deploy",
        "ts": ts,
        "team": workspace.team_id,
        "channel": "C0LOCALOPS",
        "event_ts": ts,
    }


async def test_a_message_event(workspace: Workspace) -> None:
    """A message has the type of its channel, and an event of its own beside that of its mention; a reply has the
    `thread_ts` of its root."""
    async with bare_socket(workspace) as socket:
        ts, found = await _mention(workspace, socket)
        mention, message = found["app_mention"]["payload"], found["message"]["payload"]
        assert mention["event"]["ts"] == message["event"]["ts"] == ts
        assert mention["event_id"] != message["event_id"]
        event = message["event"]
        assert TS.match(event["ts"])
        assert event["channel_type"] == "channel"
        assert "thread_ts" not in event
        reply_ts = await workspace.post("ben", "ops", "me too", ts)
        envelope = await socket.event()
        event = envelope["payload"]["event"]
    event.pop("client_msg_id")
    assert event == {
        "type": "message",
        "user": "U0LOCALBEN",
        "text": "me too",
        "ts": reply_ts,
        "team": workspace.team_id,
        "thread_ts": ts,
        "channel": "C0LOCALOPS",
        "event_ts": reply_ts,
        "channel_type": "channel",
    }


async def test_a_reply_to_a_reply_joins_the_thread_of_its_root(workspace: Workspace) -> None:
    """Threads are flat: a reply given a reply's ts belongs to the root."""
    root = await workspace.post("ana", "ops", "root")
    reply = await workspace.post("ben", "ops", "reply", root)
    await workspace.post("dev", "ops", "reply to the reply", reply)
    assert [m["text"] for m in workspace.messages("ops", root)] == ["root", "reply", "reply to the reply"]


async def test_private_channels_are_groups_and_a_broadcast_has_its_subtype(workspace: Workspace) -> None:
    """`channel_type` of a private channel is `group`; a reply shown in the channel is `thread_broadcast`."""
    workspace.add_channel("secret", ["ana", "sayso"], is_private=True)
    async with bare_socket(workspace) as socket:
        root = await workspace.post("ana", "secret", "root")
        await workspace.post("ana", "secret", "reply", root, broadcast=True)
        first, second = await socket.event(), await socket.event()
    assert first["payload"]["event"]["channel_type"] == "group"
    assert second["payload"]["event"]["subtype"] == "thread_broadcast"
    assert [m["text"] for m in workspace.messages("secret")] == ["root", "reply"]


async def test_the_apps_own_posts_are_message_events_with_its_ids(workspace: Workspace) -> None:
    """What the app posts comes back as an event with bot_id, app_id, bot user, team and blocks."""
    async with bare_socket(workspace) as socket:
        await client_of(workspace).chat_postMessage(
            channel="C0LOCALOPS",
            text="hi",
            blocks=[section("hi")],
            metadata={"event_type": "x", "event_payload": {"key": "1"}},
        )
        event = (await socket.receive())["payload"]["event"]
    assert event["user"] == workspace.bot_user_id
    assert (event["bot_id"], event["app_id"]) == (workspace.state.bot_id, workspace.app_id)
    assert event["blocks"][0]["text"]["text"] == "hi"
    assert event["blocks"][0]["block_id"]
    assert "metadata" not in event


async def test_message_changed_and_message_deleted(workspace: Workspace) -> None:
    """Both are hidden, have an own ts, and carry what was there before."""
    ts = await workspace.post("ana", "ops", "one")
    async with bare_socket(workspace) as socket:
        await workspace.edit("ana", "ops", ts, "two")
        changed = (await socket.event())["payload"]["event"]
        await workspace.delete("ana", "ops", ts)
        deleted = (await socket.event())["payload"]["event"]
    assert {"type", "subtype", "message", "previous_message", "channel", "hidden", "ts", "event_ts"} <= set(
        changed
    )
    assert (changed["subtype"], deleted["subtype"]) == ("message_changed", "message_deleted")
    assert (changed["previous_message"]["text"], changed["message"]["text"]) == ("one", "two")
    assert changed["hidden"] is True
    assert changed["ts"] != ts
    assert changed["message"]["ts"] == changed["previous_message"]["ts"] == ts
    assert changed["message"]["edited"]["user"] == "U0LOCALANA"
    assert deleted["deleted_ts"] == ts
    assert deleted["previous_message"]["text"] == "two"
    assert workspace.messages("ops") == []


async def test_block_actions(workspace: Workspace, bolt: RunningApp) -> None:
    """A press: user, app, container, trigger, team, channel, message, state, response_url, actions."""
    root = await workspace.post("ana", "ops", "root")
    blocks = [
        section("Sure?"),
        actions(button("Yes", "decide", "id-1", style="primary"), block_id="b1"),
        text_input("why", optional=True),
    ]
    posted = await bolt.client.chat_postMessage(
        channel="C0LOCALOPS", text="Sure?", thread_ts=root, blocks=blocks
    )
    filled = {"why": {"value": {"type": "plain_text_input", "value": "because"}}}
    action_ts = await workspace.press("ben", "ops", posted["ts"], text="Yes", values=filled)
    payload = bolt.of("block_actions")[0]
    assert payload["type"] == "block_actions"
    assert payload["user"] == {
        "id": "U0LOCALBEN",
        "username": "ben",
        "name": "ben",
        "team_id": workspace.team_id,
    }
    assert payload["api_app_id"] == workspace.app_id
    assert payload["team"]["id"] == workspace.team_id
    assert payload["enterprise"] is None
    assert payload["is_enterprise_install"] is False
    assert payload["channel"] == {"id": "C0LOCALOPS", "name": "ops"}
    message = payload["message"]
    assert payload["container"] == {
        "type": "message",
        "message_ts": message["ts"],
        "channel_id": "C0LOCALOPS",
        "is_ephemeral": False,
        "thread_ts": message["thread_ts"],
    }
    assert message["bot_id"] == workspace.state.bot_id
    assert len(message["blocks"]) == 3
    assert payload["response_url"].startswith(workspace.url)
    assert workspace.team_id in payload["trigger_id"]
    assert payload["state"]["values"] == {"why": {"value": {"type": "plain_text_input", "value": "because"}}}
    (action,) = payload["actions"]
    assert TS.match(action_ts)
    assert action.pop("action_ts") == action_ts
    assert action == {
        "action_id": "decide",
        "block_id": "b1",
        "text": {"type": "plain_text", "text": "Yes"},
        "value": "id-1",
        "style": "primary",
        "type": "button",
    }


async def test_a_changed_select_carries_its_option_and_the_state(
    workspace: Workspace, bolt: RunningApp
) -> None:
    """For a select the action and the state have `selected_option`."""
    option = {"text": {"type": "plain_text", "text": "Europe"}, "value": "eu"}
    other = {"text": {"type": "plain_text", "text": "America"}, "value": "us"}
    select = {"type": "static_select", "action_id": "region", "options": [option, other]}
    posted = await bolt.client.chat_postMessage(channel="#ops", text="?", blocks=[actions(select)])
    await workspace.press("ana", "ops", posted["ts"], action_id="region", value="us")
    payload = bolt.of("block_actions")[0]
    assert payload["actions"][0]["selected_option"] == other
    assert payload["state"]["values"]["acts"]["region"] == {"type": "static_select", "selected_option": other}


def _form(app: AsyncApp) -> None:
    @app.command("/sayso")
    async def open_form(ack: Any, body: Any, client: Any) -> None:
        await ack()
        view = modal(text_input("reason"), private_metadata="p-1", notify_on_close=True)
        await client.views_open(trigger_id=body["trigger_id"], view=view)


async def test_view_submission(workspace: Workspace) -> None:
    """A submission: the whole view with id, hash, state, private_metadata, root and app ids."""
    async with running_app(workspace, _form) as bolt:
        await workspace.slash("ana", "ops", "/sayso")
        view_id = (await workspace.wait_for(lambda: workspace.views("ana")))[0]["id"]
        await workspace.submit_view("ana", view_id, {"reason": "tests"})
        payload = bolt.of("view_submission")[0]
    assert payload["user"]["id"] == "U0LOCALANA"
    assert payload["api_app_id"] == workspace.app_id
    assert payload["trigger_id"]
    assert payload["response_urls"] == []
    view = payload["view"]
    assert view["id"] == view["root_view_id"] == view_id
    assert view["team_id"] == workspace.team_id
    assert view["app_id"] == workspace.app_id
    assert view["bot_id"] == workspace.state.bot_id
    assert view["type"] == "modal"
    assert view["callback_id"] == "form"
    assert view["private_metadata"] == "p-1"
    assert view["previous_view_id"] is None
    assert view["hash"]
    assert view["state"]["values"] == {"reason": {"value": {"type": "plain_text_input", "value": "tests"}}}


async def test_view_closed_comes_only_on_demand(workspace: Workspace) -> None:
    """A dismissed modal that asked for it makes a `view_closed`."""
    async with running_app(workspace, _form) as bolt:
        await workspace.slash("ana", "ops", "/sayso")
        view_id = (await workspace.wait_for(lambda: workspace.views("ana")))[0]["id"]
        await workspace.close_view("ana", view_id)
        closed = bolt.of("view_closed")[0]
    assert closed["view"]["id"] == view_id
    assert closed["is_cleared"] is False
    assert workspace.views("ana") == []


async def test_slash_command(workspace: Workspace, bolt: RunningApp) -> None:
    """A command is a flat payload with its text as typed, who, where, and the two grants."""
    await workspace.slash("dev", "releases", "/sayso", "run deploy service=api")
    (payload,) = (body for body in bolt.bodies if "command" in body)
    assert payload.pop("trigger_id")
    assert payload.pop("response_url").startswith(workspace.url)
    assert payload.pop("token")
    assert payload == {
        "team_id": workspace.team_id,
        "team_domain": "local-workspace",
        "channel_id": "C0LOCALREL",
        "channel_name": "releases",
        "user_id": "U0LOCALDEV",
        "user_name": "dev",
        "command": "/sayso",
        "text": "run deploy service=api",
        "api_app_id": workspace.app_id,
        "is_enterprise_install": "false",
    }


async def test_interactive_envelopes_accept_an_answer(workspace: Workspace) -> None:
    """Interactions say that they accept a payload with the acknowledgement, which is shown to the person alone, and have
    no retry fields."""
    async with bare_socket(workspace) as socket:
        typed = asyncio.create_task(workspace.slash("ana", "ops", "/sayso", "hi"))
        envelope = await socket.receive()
        await socket.ack(envelope, {"text": "hello"})
        assert await typed == {"text": "hello"}
    assert [m["text"] for m in workspace.ephemerals("ana")] == ["hello"]
    assert workspace.ephemerals("ben") == []
    assert envelope["type"] == "slash_commands"
    assert envelope["accepts_response_payload"] is True
    assert "retry_attempt" not in envelope
