"""The Web API through the real slack_sdk: arguments, tokens, scopes, pages, and Slack's names for refusals."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace.methods import METHODS
from tests.support.acting import Workspace
from tests.support.workspace import Json, actions, button, client_of, section

OPS = "C0LOCALOPS"
RANDOM = "C0LOCALRND"


async def _refusal(call: Awaitable[Any]) -> Json:
    """The body of the refusal that the call ends with."""
    with pytest.raises(SlackApiError) as refused:
        await call
    body: Json = refused.value.response.data
    return body


async def _error(call: Awaitable[Any]) -> str:
    return str((await _refusal(call))["error"])


# -- arguments and tokens


async def test_auth_test_says_who_and_that_this_is_not_slack(
    workspace: Workspace, client: AsyncWebClient
) -> None:
    """auth.test names team, bot and app; its url is on loopback and says `not-slack`."""
    answer = await client.auth_test()
    assert answer["team_id"] == workspace.team_id
    assert answer["user_id"] == workspace.bot_user_id
    assert answer["bot_id"] == workspace.state.bot_id
    assert answer["url"].startswith("http://127.0.0.1:")
    assert "not-slack" in answer["url"]


@pytest.mark.parametrize("way", ["query", "form", "json", "post_query"])
async def test_arguments_are_taken_in_every_way(workspace: Workspace, way: str) -> None:
    """GET with a query, POST with a form, with JSON, or with the arguments in the query: all the same."""
    args: Json = {"channel": OPS, "text": "hi", "blocks": json.dumps([section("hi")])}
    headers = {"Authorization": f"Bearer {workspace.bot_token}"}
    ways: dict[str, Json] = {
        "query": {"method": "GET", "params": args},
        "form": {"method": "POST", "data": args},
        "json": {"method": "POST", "json": {**args, "blocks": [section("hi")]}},
        "post_query": {"method": "POST", "params": args},
    }
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(url=f"{workspace.api_url}chat.postMessage", **ways[way]) as answer,
    ):
        assert (await answer.json())["ok"] is True
    assert workspace.messages("ops")[0]["blocks"][0]["text"]["text"] == "hi"


async def test_the_token_may_be_an_argument(workspace: Workspace) -> None:
    """`token` as a field is as good as the header, and is not recorded."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{workspace.api_url}auth.test", data={"token": workspace.bot_token}) as answer,
    ):
        assert (await answer.json())["ok"] is True
    assert workspace.calls[-1].args == {}
    assert workspace.calls[-1].token_in == "argument"


async def test_wrong_tokens_are_refused(workspace: Workspace) -> None:
    """No token, a foreign one, and the app-level one each have their error; so has the bot's where that one is wanted."""
    async with aiohttp.ClientSession() as session:
        for method, token, error in (
            ("users.list", "", "not_authed"),
            ("users.list", "xoxb-other", "invalid_auth"),
            ("users.list", "xapp-1-local-workspace", "not_allowed_token_type"),
            ("apps.connections.open", workspace.bot_token, "not_allowed_token_type"),
        ):
            async with session.post(f"{workspace.api_url}{method}", data={"token": token}) as answer:
                assert (await answer.json())["error"] == error, (method, token)


async def test_an_unknown_method_is_an_error(client: AsyncWebClient) -> None:
    """What the workspace does not know it does not pretend to do."""
    assert await _error(client.api_call("pins.add")) == "unknown_method"


async def test_api_test_needs_no_token_and_gives_back(workspace: Workspace) -> None:
    """api.test echoes its arguments, or fails as asked."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{workspace.api_url}api.test", params={"foo": "bar"}) as answer,
    ):
        assert await answer.json() == {"ok": True, "args": {"foo": "bar"}}
    assert await _error(client_of(workspace).api_test(error="my_error")) == "my_error"


async def test_calls_are_recorded(workspace: Workspace, client: AsyncWebClient) -> None:
    """Each call with its arguments, its time and its answer."""
    await client.chat_postMessage(channel=OPS, text="hi")
    (call,) = workspace.calls_to("chat.postMessage")
    assert call.args["text"] == "hi"
    assert call.ok
    assert call.response is not None
    assert call.response["ts"] == workspace.messages("ops")[0]["ts"]
    assert call.at > 0


SCOPED: dict[str, tuple[str, Callable[[AsyncWebClient], Awaitable[Any]]]] = {
    "chat.postMessage": ("chat:write", lambda c: c.chat_postMessage(channel=OPS, text="x")),
    "agents.sessions.setStatus": (
        "chat:write",
        lambda c: c.agents_sessions_setStatus(channel_id=OPS, thread_ts="1.1", status="closed"),
    ),
    "assistant.threads.setSuggestedPrompts": (
        "assistant:write",
        lambda c: c.assistant_threads_setSuggestedPrompts(channel_id=OPS, prompts=[]),
    ),
    "chat.update": ("chat:write", lambda c: c.chat_update(channel=OPS, ts="1.1", text="x")),
    "chat.delete": ("chat:write", lambda c: c.chat_delete(channel=OPS, ts="1.1")),
    "chat.postEphemeral": (
        "chat:write",
        lambda c: c.chat_postEphemeral(channel=OPS, user="U0LOCALANA", text="x"),
    ),
    "conversations.info": ("channels:read", lambda c: c.conversations_info(channel=OPS)),
    "conversations.list": ("channels:read", lambda c: c.conversations_list()),
    "users.conversations": ("channels:read", lambda c: c.users_conversations()),
    "conversations.members": ("channels:read", lambda c: c.conversations_members(channel=OPS)),
    "conversations.history": ("channels:history", lambda c: c.conversations_history(channel=OPS)),
    "conversations.replies": ("channels:history", lambda c: c.conversations_replies(channel=OPS, ts="1.1")),
    "conversations.open": ("im:write", lambda c: c.conversations_open(users=["U0LOCALANA"])),
    "conversations.join": ("channels:join", lambda c: c.conversations_join(channel=RANDOM)),
    "users.info": ("users:read", lambda c: c.users_info(user="U0LOCALANA")),
    "users.list": ("users:read", lambda c: c.users_list()),
    "users.lookupByEmail": ("users:read.email", lambda c: c.users_lookupByEmail(email="ana@example.com")),
    "usergroups.list": ("usergroups:read", lambda c: c.usergroups_list()),
    "usergroups.users.list": ("usergroups:read", lambda c: c.usergroups_users_list(usergroup="S0LOCALSRE")),
    "bots.info": ("users:read", lambda c: c.bots_info(bot="B0LOCAL01")),
    "team.info": ("team:read", lambda c: c.team_info()),
    "reactions.add": (
        "reactions:write",
        lambda c: c.reactions_add(channel=OPS, name="eyes", timestamp="1.1"),
    ),
    "reactions.remove": (
        "reactions:write",
        lambda c: c.reactions_remove(channel=OPS, name="eyes", timestamp="1.1"),
    ),
    "reactions.get": ("reactions:read", lambda c: c.reactions_get(channel=OPS, timestamp="1.1")),
    "files.info": ("files:read", lambda c: c.files_info(file="F1")),
    "files.getUploadURLExternal": (
        "files:write",
        lambda c: c.files_getUploadURLExternal(filename="a", length=1),
    ),
    "files.completeUploadExternal": (
        "files:write",
        lambda c: c.files_completeUploadExternal(files=[{"id": "F1"}]),
    ),
}
UNSCOPED = {
    "api.test",
    "apps.connections.open",  # the app-level token has its scope
    "auth.test",
    "chat.getPermalink",
    "views.open",
    "views.publish",
    "views.push",
    "views.update",
}


async def test_each_method_needs_its_scope(workspace: Workspace, client: AsyncWebClient) -> None:
    """Without the scope the call is refused before anything else is looked at."""
    workspace.faults.scopes = []
    for method, (scope, call) in SCOPED.items():
        refusal = await _refusal(call(client))
        assert (refusal["error"], refusal["needed"]) == ("missing_scope", scope), method


def test_every_method_is_in_one_of_the_two_lists() -> None:
    """A method that is added gets a decision about its scope."""
    assert set(SCOPED) | UNSCOPED == set(METHODS)


async def test_scopes_of_private_channels_and_direct_messages_are_their_own(
    workspace: Workspace, client: AsyncWebClient
) -> None:
    """History of a private channel needs groups:history, of a direct message im:history."""
    secret = workspace.add_channel("secret", ["ana", "sayso"], is_private=True)
    workspace.faults.scopes = ["channels:history"]
    refusal = await _refusal(client.conversations_history(channel=secret.id))
    assert refusal["needed"] == "groups:history"
    refusal = await _refusal(client.conversations_history(channel=workspace.dm("ana").id))
    assert refusal["needed"] == "im:history"


# -- channels and people


async def test_channel_refusals(workspace: Workspace, client: AsyncWebClient) -> None:
    """Unknown, foreign private, not joined and archived channels each have their error."""
    secret = workspace.add_channel("secret", ["ana"], is_private=True)
    old = workspace.add_channel("old", is_archived=True)
    assert await _error(client.chat_postMessage(channel="C404", text="x")) == "channel_not_found"
    assert await _error(client.conversations_info(channel=secret.id)) == "channel_not_found"
    assert await _error(client.chat_postMessage(channel=RANDOM, text="x")) == "not_in_channel"
    assert await _error(client.conversations_history(channel=RANDOM)) == "not_in_channel"
    assert await _error(client.chat_postMessage(channel=old.id, text="x")) == "is_archived"


async def test_a_join_makes_the_app_a_member(workspace: Workspace, client: AsyncWebClient) -> None:
    """After conversations.join the app may post; private channels cannot be joined."""
    workspace.faults.scopes = ["channels:join", "chat:write"]
    joined = await client.conversations_join(channel=RANDOM)
    assert joined["channel"]["is_member"] is True
    assert (await client.chat_postMessage(channel=RANDOM, text="hi"))["ok"]


async def test_conversations_are_listed_page_by_page(workspace: Workspace, client: AsyncWebClient) -> None:
    """The SDK's pages bring every public channel once; private ones only where the app is in."""
    workspace.add_channel("secret", ["ana"], is_private=True)
    workspace.add_channel("ours", ["ana", "sayso"], is_private=True)
    names = []
    async for page in await client.conversations_list(types="public_channel,private_channel", limit=2):
        assert len(page["channels"]) <= 2
        names += [channel["name"] for channel in page["channels"]]
    assert names == ["ops", "releases", "incidents", "random", "ours"]
    own = await client.users_conversations(types="public_channel,private_channel")
    assert [c["name"] for c in own["channels"]] == ["ops", "releases", "incidents", "ours"]


async def test_people_are_described_as_slack_does(workspace: Workspace, client: AsyncWebClient) -> None:
    """Guests, strangers, deactivated people and bots can be told apart; e-mail needs its scope."""
    guest = workspace.add_user("gus", is_restricted=True)
    stranger = workspace.add_user("sam", is_stranger=True, team_id="T0OTHER")
    gone = workspace.add_user("gil", deleted=True)
    pager = workspace.add_user("pager", is_bot=True)
    assert (await client.users_info(user=guest.id))["user"]["is_restricted"] is True
    other = (await client.users_info(user=stranger.id))["user"]
    assert (other["is_stranger"], other["team_id"]) == (True, "T0OTHER")
    assert (await client.users_info(user=gone.id))["user"]["deleted"] is True
    assert (await client.users_info(user=pager.id))["user"]["is_bot"] is True
    assert await _error(client.users_info(user="U404")) == "user_not_found"
    found = await client.users_lookupByEmail(email="Ben@example.com")
    assert found["user"]["profile"]["email"] == "ben@example.com"
    assert await _error(client.users_lookupByEmail(email="gil@example.com")) == "users_not_found"
    workspace.faults.scopes = ["users:read"]
    assert "email" not in (await client.users_info(user=guest.id))["user"]["profile"]


async def test_members_and_user_groups(workspace: Workspace, client: AsyncWebClient) -> None:
    """Members come in pages; @sre is ben and dev."""
    first = await client.conversations_members(channel=OPS, limit=3)
    rest = await client.conversations_members(
        channel=OPS, limit=3, cursor=first["response_metadata"]["next_cursor"]
    )
    assert first["members"] + rest["members"] == workspace.channel("ops").members
    (group,) = (await client.usergroups_list(include_users=True))["usergroups"]
    assert (group["handle"], group["users"]) == ("sre", ["U0LOCALBEN", "U0LOCALDEV"])
    users = await client.usergroups_users_list(usergroup=group["id"])
    assert users["users"] == group["users"]
    assert await _error(client.usergroups_users_list(usergroup="S404")) == "no_such_subteam"


async def test_a_direct_message_is_opened_once(workspace: Workspace, client: AsyncWebClient) -> None:
    """conversations.open gives the same conversation again; posting to a person's id lands there."""
    opened = await client.conversations_open(users=["U0LOCALANA"])
    again = await client.conversations_open(users=["U0LOCALANA"])
    assert opened["channel"]["id"] == again["channel"]["id"]
    posted = await client.chat_postMessage(channel="U0LOCALANA", text="psst")
    assert posted["channel"] == opened["channel"]["id"]
    assert await _error(client.conversations_open(users=["U404"])) == "user_not_found"


# -- messages


async def test_a_post_is_stored_as_the_apps(workspace: Workspace, client: AsyncWebClient) -> None:
    """The message has the bot's ids, and ids for its block and its button."""
    plain = {"type": "button", "text": {"type": "plain_text", "text": "Go"}}
    posted = await client.chat_postMessage(
        channel=OPS, text="hi", blocks=[{"type": "actions", "elements": [plain]}]
    )
    message = posted["message"]
    assert message["user"] == workspace.bot_user_id
    assert message["bot_id"] == workspace.state.bot_id
    assert message["app_id"] == workspace.app_id
    assert message["team"] == workspace.team_id
    assert message["blocks"][0]["block_id"]
    assert message["blocks"][0]["elements"][0]["action_id"]


async def test_posting_refusals(client: AsyncWebClient) -> None:
    """Nothing to say, no such thread, blocks that are no list, metadata of the wrong shape."""
    assert await _error(client.chat_postMessage(channel=OPS, text="")) == "no_text"
    assert await _error(client.chat_postMessage(channel=OPS, text="x", thread_ts="1.2")) == "thread_not_found"
    for blocks in ("{oops", "{}"):
        call = client.chat_postMessage(channel=OPS, text="x", blocks=blocks)
        assert await _error(call) == "invalid_blocks_format"
    call = client.chat_postMessage(channel=OPS, text="x", metadata={"event_type": "x"})
    assert await _error(call) == "invalid_metadata_format"


async def test_an_update_with_text_alone_removes_the_blocks(
    workspace: Workspace, client: AsyncWebClient
) -> None:
    """As Slack documents: text without blocks replaces them and marks an edit; blocks alone keep the text."""
    posted = await client.chat_postMessage(channel=OPS, text="one", blocks=[actions(button("Go", "go"))])
    await client.chat_update(channel=OPS, ts=posted["ts"], blocks=[section("two")])
    (message,) = workspace.messages("ops")
    assert (message["text"], message["blocks"][0]["text"]["text"]) == ("one", "two")
    assert "edited" not in message
    await client.chat_update(channel=OPS, ts=posted["ts"], text="three")
    (message,) = workspace.messages("ops")
    assert (message["text"], "blocks" in message) == ("three", False)
    assert message["edited"]["user"] == workspace.bot_user_id


async def test_update_and_delete_refusals(workspace: Workspace, client: AsyncWebClient) -> None:
    """The app changes only what it posted, and only what is there."""
    ts = await workspace.post("ana", "ops", "mine")
    assert await _error(client.chat_update(channel=OPS, ts=ts, text="x")) == "cant_update_message"
    assert await _error(client.chat_delete(channel=OPS, ts=ts)) == "cant_delete_message"
    assert await _error(client.chat_update(channel=OPS, ts="1.1", text="x")) == "message_not_found"
    assert await _error(client.chat_delete(channel=OPS, ts="1.1")) == "message_not_found"


async def test_metadata_comes_only_on_demand_and_survives_an_update(client: AsyncWebClient) -> None:
    """Without `include_all_metadata` a reader sees none; an update without metadata keeps it."""
    metadata = {"event_type": "prompt", "event_payload": {"key": "k"}}
    posted = await client.chat_postMessage(channel=OPS, text="one", metadata=metadata)
    await client.chat_update(channel=OPS, ts=posted["ts"], text="two")
    plain = await client.conversations_history(channel=OPS)
    assert "metadata" not in plain["messages"][0]
    full = await client.conversations_history(channel=OPS, include_all_metadata=True)
    assert full["messages"][0]["metadata"] == metadata


async def test_ephemeral_refusals(workspace: Workspace, client: AsyncWebClient) -> None:
    """Only members of the channel can be shown something there."""
    workspace.leave("cleo", "ops")
    call = client.chat_postEphemeral(channel=OPS, user="U0LOCALCLEO", text="x")
    assert await _error(call) == "user_not_in_channel"


async def test_a_permalink_leads_to_the_local_page(workspace: Workspace, client: AsyncWebClient) -> None:
    """chat.getPermalink points at the thread on the page."""
    ts = await workspace.post("ana", "ops", "here")
    link = await client.chat_getPermalink(channel=OPS, message_ts=ts)
    assert link["permalink"] == f"{workspace.url}/#/{OPS}/{ts}"


async def test_history_goes_backwards_page_by_page(workspace: Workspace, client: AsyncWebClient) -> None:
    """Newest first, each message once, replies left out, `has_more` until the end."""
    stamps = [await workspace.post("ana", "ops", f"m{n}") for n in range(7)]
    await workspace.post("ben", "ops", "a reply", stamps[3])
    seen = []
    async for page in await client.conversations_history(channel=OPS, limit=3):
        seen.append([m["text"] for m in page["messages"]])
    assert seen == [["m6", "m5", "m4"], ["m3", "m2", "m1"], ["m0"]]


async def test_oldest_latest_and_inclusive(workspace: Workspace, client: AsyncWebClient) -> None:
    """Limits are left out unless `inclusive`."""
    stamps = [await workspace.post("ana", "ops", f"m{n}") for n in range(5)]
    between = await client.conversations_history(channel=OPS, oldest=stamps[1], latest=stamps[3])
    assert [m["text"] for m in between["messages"]] == ["m2"]
    inclusive = await client.conversations_history(
        channel=OPS, oldest=stamps[1], latest=stamps[3], inclusive=True
    )
    assert [m["text"] for m in inclusive["messages"]] == ["m3", "m2", "m1"]
    assert await _error(client.conversations_history(channel=OPS, oldest="yesterday")) == "invalid_ts_oldest"
    assert await _error(client.conversations_history(channel=OPS, cursor="???")) == "invalid_cursor"
    assert await _error(client.conversations_history(channel=OPS, limit=0)) == "invalid_limit"


async def test_replies_have_the_root_on_every_page(workspace: Workspace, client: AsyncWebClient) -> None:
    """Oldest first, in pages; the root is always there, even before `oldest`."""
    root = await workspace.post("ana", "ops", "root")
    replies = [await workspace.post("ben", "ops", f"r{n}", root) for n in range(5)]
    seen = []
    async for page in await client.conversations_replies(channel=OPS, ts=root, limit=2):
        seen.append([m["text"] for m in page["messages"]])
    assert seen == [["root", "r0", "r1"], ["root", "r2", "r3"], ["root", "r4"]]
    newer = await client.conversations_replies(channel=OPS, ts=root, oldest=replies[2])
    assert [m["text"] for m in newer["messages"]] == ["root", "r3", "r4"]
    assert newer["messages"][0]["reply_count"] == 5
    assert await _error(client.conversations_replies(channel=OPS, ts="1.1")) == "thread_not_found"


async def test_a_deleted_root_leaves_a_tombstone(workspace: Workspace, client: AsyncWebClient) -> None:
    """Its replies stay; a root without replies vanishes."""
    root = await workspace.post("ana", "ops", "root")
    await workspace.post("ben", "ops", "reply", root)
    await workspace.delete("ana", "ops", root)
    thread = (await client.conversations_replies(channel=OPS, ts=root))["messages"]
    assert [m.get("subtype") for m in thread] == ["tombstone", None]
    alone = await workspace.post("ana", "ops", "alone")
    await workspace.delete("ana", "ops", alone)
    assert await _error(client.conversations_replies(channel=OPS, ts=alone)) == "thread_not_found"


async def test_reactions_of_the_app(workspace: Workspace, client: AsyncWebClient) -> None:
    """Added once, seen, removed once."""
    ts = await workspace.post("ana", "ops", "look")
    await client.reactions_add(channel=OPS, name="eyes", timestamp=ts)
    again = client.reactions_add(channel=OPS, name="eyes", timestamp=ts)
    assert await _error(again) == "already_reacted"
    got = await client.reactions_get(channel=OPS, timestamp=ts)
    assert got["message"]["reactions"] == [{"name": "eyes", "users": [workspace.bot_user_id], "count": 1}]
    await client.reactions_remove(channel=OPS, name="eyes", timestamp=ts)
    assert await _error(client.reactions_remove(channel=OPS, name="eyes", timestamp=ts)) == "no_reaction"
    assert "reactions" not in workspace.messages("ops")[0]


async def test_bots_and_team(workspace: Workspace, client: AsyncWebClient) -> None:
    """bots.info describes the app's bot; team.info names the workspace."""
    workspace.faults.scopes = ["users:read", "team:read"]
    bot = await client.bots_info(bot=workspace.state.bot_id)
    assert bot["bot"]["user_id"] == workspace.bot_user_id
    assert (await client.team_info())["team"]["name"] == "Local workspace"
