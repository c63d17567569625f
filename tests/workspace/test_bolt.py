"""The real Bolt app over real sockets: what an app does all day."""

from __future__ import annotations

from typing import Any

import pytest
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError

from bot.workspace import NotAcknowledged, WorkspaceError
from tests.support.acting import Workspace
from tests.support.workspace import (
    RunningApp,
    actions,
    button,
    client_of,
    running_app,
)


async def test_a_mention_reaches_the_app_and_its_answer_stands_in_the_thread(workspace: Workspace) -> None:
    """A person mentions the app; it hears `app_mention`, acknowledges, and answers in the thread."""

    def configure(app: AsyncApp) -> None:
        @app.event("app_mention")
        async def answer(event: Any, say: Any) -> None:
            await say(text=f"hello <@{event['user']}>", thread_ts=event["ts"])

    async with running_app(workspace, configure):
        ts = await workspace.post("ana", "ops", "@sayso are you there?")
        await workspace.wait_for(lambda: len(workspace.messages("ops", ts)) == 2)
        await workspace.settled()
    root, reply = workspace.messages("ops", ts)
    assert root["text"] == f"<@{workspace.bot_user_id}> are you there?"
    assert root["reply_count"] == 1
    assert root["latest_reply"] == reply["ts"]
    assert reply["text"] == f"hello <@{workspace.user('ana').id}>"
    assert reply["bot_id"]
    mention = next(d for d in workspace.deliveries if d.payload["event"]["type"] == "app_mention")
    assert mention.state == "acked"
    assert len(mention.attempts) == 1
    assert mention.ack_latency is not None


async def test_the_order_of_message_and_mention_can_be_turned_round(workspace: Workspace) -> None:
    """`mention_order` decides which of the two events is sent first."""
    workspace.faults.deliver_after_reconnect = True
    workspace.faults.mention_order = "mention_first"
    await workspace.post("ana", "ops", "@sayso hi")
    kinds = [d.payload["event"]["type"] for d in workspace.deliveries]
    assert kinds == ["app_mention", "message"]


async def test_channels_without_the_app_tell_it_nothing(workspace: Workspace, bolt: RunningApp) -> None:
    """A post in a channel that the app is not in makes no event, even with a mention."""
    await workspace.post("ana", "random", "@sayso can you hear me?")
    await workspace.post("ana", "ops", "now you can")
    await workspace.wait_for(lambda: bolt.events("message"))
    assert [body["event"]["text"] for body in bolt.events("message")] == ["now you can"]
    assert not bolt.events("app_mention")


async def test_a_direct_message_comes_as_im_and_makes_no_mention(
    workspace: Workspace, bolt: RunningApp
) -> None:
    """In the direct message with the app, posts are message events with channel_type `im`."""
    await workspace.post("ana", workspace.dm("ana"), "@sayso hello")
    await workspace.wait_for(lambda: bolt.events("message"))
    await workspace.settled()
    assert bolt.events("message")[0]["event"]["channel_type"] == "im"
    assert not bolt.events("app_mention")


async def test_a_press_of_what_is_not_there_says_what_is(workspace: Workspace, bolt: RunningApp) -> None:
    """A button that does not exist is an error which names the buttons that do."""
    posted = await bolt.client.chat_postMessage(
        channel="#ops", text="?", blocks=[actions(button("Approve", "yes"))]
    )
    with pytest.raises(WorkspaceError, match="Approve"):
        await workspace.press("ben", "ops", posted["ts"], text="Reject")


async def test_a_press_on_a_deleted_message_is_refused(workspace: Workspace, bolt: RunningApp) -> None:
    """Nobody can press a button of a message that is gone."""
    posted = await bolt.client.chat_postMessage(
        channel="#ops", text="?", blocks=[actions(button("Approve", "yes"))]
    )
    await bolt.client.chat_delete(channel=posted["channel"], ts=posted["ts"])
    with pytest.raises(WorkspaceError, match="message_not_found"):
        await workspace.press("ben", "ops", posted["ts"], text="Approve")


async def test_a_press_without_the_app_fails_at_once(workspace: Workspace) -> None:
    """With no socket connected the person learns that the app is not there, and nothing is kept for later."""
    posted = await client_of(workspace).chat_postMessage(
        channel="#ops", text="?", blocks=[actions(button("Go", "go"))]
    )
    with pytest.raises(NotAcknowledged, match="dispatch_failed"):
        await workspace.press("ana", "ops", posted["ts"], text="Go")
    assert workspace.deliveries[-1].state == "dropped"


async def test_an_ephemeral_message_is_seen_by_one_person(workspace: Workspace, bolt: RunningApp) -> None:
    """chat.postEphemeral shows to its person, and is in no history."""
    ana = workspace.user("ana")
    await bolt.client.chat_postEphemeral(channel=workspace.channel("ops").id, user=ana.id, text="psst")
    assert [m["text"] for m in workspace.ephemerals("ana")] == ["psst"]
    assert workspace.ephemerals("ben") == []
    history = await bolt.client.conversations_history(channel=workspace.channel("ops").id)
    assert history["messages"] == []


async def test_buttons_of_an_ephemeral_message_work_and_carry_no_message(workspace: Workspace) -> None:
    """A press on an ephemeral message says so in its container, has no `message`, and can replace it."""

    def configure(app: AsyncApp) -> None:
        @app.action("ok")
        async def replace(ack: Any, respond: Any) -> None:
            await ack()
            await respond(text="done", replace_original=True)

    async with running_app(workspace, configure) as running:
        posted = await running.client.chat_postEphemeral(
            channel=workspace.channel("ops").id,
            user=workspace.user("ana").id,
            text="?",
            blocks=[actions(button("OK", "ok"))],
        )
        await workspace.press("ana", "ops", posted["message_ts"], text="OK")
        await workspace.wait_for(lambda: workspace.ephemerals("ana")[0]["text"] == "done")
        pressed = running.of("block_actions")[0]
        assert pressed["container"]["is_ephemeral"] is True
        assert "message" not in pressed
        with pytest.raises(WorkspaceError, match="message_not_found"):
            await workspace.press("ben", "ops", posted["message_ts"], text="OK")


async def test_an_edit_that_mentions_the_app_mentions_it_anew(workspace: Workspace, bolt: RunningApp) -> None:
    """Slack sends `app_mention` again for an edited post, marked with `edited`."""
    ts = await workspace.post("ana", "ops", "run it")
    await workspace.edit("ana", "ops", ts, "@sayso run it")
    await workspace.wait_for(lambda: bolt.events("app_mention"))
    mention = bolt.events("app_mention")[0]["event"]
    assert mention["ts"] == ts
    assert mention["edited"]["user"] == workspace.user("ana").id


async def test_people_change_only_their_own_messages(workspace: Workspace) -> None:
    """Somebody else's message can be neither edited nor deleted."""
    ts = await workspace.post("ana", "ops", "mine")
    with pytest.raises(WorkspaceError, match="not_yours"):
        await workspace.edit("cleo", "ops", ts, "yours")
    with pytest.raises(WorkspaceError, match="not_yours"):
        await workspace.delete("cleo", "ops", ts)


async def test_a_reaction_reaches_the_app(workspace: Workspace, bolt: RunningApp) -> None:
    """A person's reaction is an event that names the message."""
    ts = await workspace.post("ana", "ops", "look")
    await workspace.react("ben", "ops", ts, "eyes")
    await workspace.wait_for(lambda: bolt.events("reaction_added"))
    event = bolt.events("reaction_added")[0]["event"]
    assert event["item"] == {"type": "message", "channel": workspace.channel("ops").id, "ts": ts}
    assert (event["user"], event["reaction"]) == (workspace.user("ben").id, "eyes")
    assert workspace.messages("ops")[0]["reactions"][0]["count"] == 1


async def test_shortcuts_reach_the_app(workspace: Workspace, bolt: RunningApp) -> None:
    """A global shortcut and a message shortcut are interactions with a trigger id."""
    ts = await workspace.post("ana", "ops", "this one")
    await workspace.shortcut("ana", "start_flow")
    await workspace.shortcut("ana", "attach", "ops", ts)
    assert bolt.of("shortcut")[0]["callback_id"] == "start_flow"
    on_message = bolt.of("message_action")[0]
    assert on_message["message"]["text"] == "this one"
    assert on_message["trigger_id"]


async def test_joining_and_leaving_reach_the_app(workspace: Workspace, bolt: RunningApp) -> None:
    """Members who join or leave, the app itself too, are events."""
    workspace.join(workspace.bot_user_id, "random")
    await workspace.wait_for(lambda: bolt.events("member_joined_channel"))
    workspace.leave(workspace.bot_user_id, "random")
    await workspace.wait_for(lambda: bolt.events("member_left_channel"))
    assert bolt.events("member_left_channel")[0]["event"]["user"] == workspace.bot_user_id


async def test_a_file_travels_both_ways(workspace: Workspace, bolt: RunningApp) -> None:
    """The app uploads with the SDK's files_upload_v2; a person's file is an event with subtype file_share."""
    root = await workspace.post("ana", "ops", "the log?")
    await bolt.client.files_upload_v2(
        channel=workspace.channel("ops").id, thread_ts=root, content="line 1\n", filename="run.log"
    )
    shared = workspace.messages("ops", root)[1]
    assert shared["files"][0]["name"] == "run.log"
    assert shared["files"][0]["size"] == 7
    await workspace.post("ben", "ops", "here", root, files={"mine.txt": b"abc"})
    found = await workspace.wait_for(
        lambda: [
            b["event"] for b in bolt.events("message") if "files" in b["event"] and "bot_id" not in b["event"]
        ]
    )
    assert found[0]["subtype"] == "file_share"
    assert found[0]["files"][0]["name"] == "mine.txt"


async def test_what_administrators_do_reaches_the_app(workspace: Workspace, bolt: RunningApp) -> None:
    """Archiving, sharing and a new id of a channel are events, and calls see the consequence."""
    ops, secret = workspace.channel("ops"), workspace.add_channel("secret", is_private=True)
    workspace.admin.archive(ops)
    workspace.admin.share(secret)
    ts = await workspace.post("ana", secret, "before")
    old = workspace.admin.change_id(secret)
    await workspace.settled()
    assert bolt.events("channel_archive")[0]["event"]["channel"] == ops.id
    shared = bolt.events("channel_shared")[0]
    assert shared["is_ext_shared_channel"] is True
    changed = bolt.events("channel_id_changed")[0]["event"]
    assert (changed["old_channel_id"], changed["new_channel_id"]) == (old, secret.id)
    info = await bolt.client.conversations_info(channel=secret.id)
    assert info["channel"]["is_ext_shared"] is True
    assert [m["ts"] for m in workspace.messages("secret")] == [ts]
    with pytest.raises(SlackApiError, match="channel_not_found"):
        await bolt.client.conversations_info(channel=old)
    with pytest.raises(SlackApiError, match="is_archived"):
        await bolt.client.chat_postMessage(channel=ops.id, text="x")


async def test_revoked_tokens_are_told_and_refused(workspace: Workspace, bolt: RunningApp) -> None:
    """The app hears `tokens_revoked`; every call fails."""
    workspace.admin.revoke_tokens()
    await workspace.wait_for(lambda: bolt.events("tokens_revoked"))
    with pytest.raises(SlackApiError, match="token_revoked"):
        await bolt.client.auth_test()
