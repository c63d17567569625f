"""Every fault works as specified, is recorded, and ends."""

from __future__ import annotations

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace import NotAcknowledged, WorkspaceError
from tests.support.acting import Workspace
from tests.support.workspace import (
    RunningApp,
    actions,
    bare_socket,
    button,
    client_of,
    running_app,
)

OPS = "C0LOCALOPS"


async def test_redeliver_next_sends_the_same_envelope_after_its_acknowledgement(
    workspace: Workspace, bolt: RunningApp
) -> None:
    """The app sees the same event twice; both are attempt 0, the second after the first was taken."""
    workspace.faults.redeliver_next()
    await workspace.post("ana", "ops", "hello")
    await workspace.wait_for(lambda: len(bolt.events("message")) == 2)
    await workspace.settled()
    first, second = bolt.events("message")
    assert first == second
    assert [retry["x-slack-retry-num"] for retry in bolt.retries] == ["0", "0"]
    assert len(workspace.deliveries[0].attempts) == 1
    assert workspace.faults.struck == [{"kind": "redeliveries", "event_id": workspace.deliveries[0].event_id}]


async def test_duplicate_attempt0_sends_an_envelope_twice_at_once(workspace: Workspace) -> None:
    """Both copies come before any acknowledgement, with the same envelope id."""
    workspace.faults.duplicate_attempt0()
    async with bare_socket(workspace) as socket:
        await workspace.post("ana", "ops", "hello")
        first, second = await socket.receive(), await socket.receive()
        await socket.ack(first)
        await workspace.settled()
    assert first == second
    assert first["retry_attempt"] == 0


async def test_a_duplicate_goes_to_another_socket_where_there_is_one(workspace: Workspace) -> None:
    """With two sockets each of them gets a copy."""
    workspace.faults.duplicate_attempt0()
    async with bare_socket(workspace) as one, bare_socket(workspace) as other:
        await workspace.post("ana", "ops", "hello")
        first, second = await one.receive(), await other.receive()
        await one.ack(first)
        await workspace.settled()
    assert first["envelope_id"] == second["envelope_id"]


async def test_a_lost_acknowledgement_brings_the_event_again(workspace: Workspace, bolt: RunningApp) -> None:
    """The app acknowledged, the workspace did not hear it: a retry with the same event id."""
    workspace.faults.ack_timeout = 0.1
    workspace.faults.lose_ack_next()
    await workspace.post("ana", "ops", "hello")
    await workspace.settled()
    first, second = bolt.events("message")
    assert first["event_id"] == second["event_id"]
    assert [a.retry_attempt for a in workspace.deliveries[0].attempts] == [0, 1]


async def test_a_click_whose_acknowledgement_is_lost_fails_for_the_person_only(
    workspace: Workspace, bolt: RunningApp
) -> None:
    """The app got the click, the person sees an error: pressing again makes a second click."""
    workspace.faults.ack_timeout = 0.1
    posted = await bolt.client.chat_postMessage(
        channel="#ops", text="?", blocks=[actions(button("Go", "go"))]
    )
    await workspace.settled()
    workspace.faults.lose_ack_next()
    with pytest.raises(NotAcknowledged):
        await workspace.press("ana", "ops", posted["ts"], text="Go")
    await workspace.press("ana", "ops", posted["ts"], text="Go")
    first, second = bolt.of("block_actions")
    assert first["actions"][0]["action_ts"] != second["actions"][0]["action_ts"]


async def test_ratelimit_answers_429_with_retry_after(workspace: Workspace, client: AsyncWebClient) -> None:
    """The calls are refused without effect as often as asked, then carried out."""
    workspace.faults.ratelimit("chat.postMessage", times=2, retry_after=7)
    for _ in range(2):
        with pytest.raises(SlackApiError) as refused:
            await client.chat_postMessage(channel=OPS, text="hi")
        assert refused.value.response.status_code == 429
        assert refused.value.response["error"] == "ratelimited"
        assert refused.value.response.headers["Retry-After"] == "7"
    assert workspace.messages("ops") == []
    await client.chat_postMessage(channel=OPS, text="hi")
    assert len(workspace.messages("ops")) == 1


async def test_other_methods_are_not_limited(workspace: Workspace, client: AsyncWebClient) -> None:
    """A fault of one method leaves the others alone."""
    workspace.faults.ratelimit("chat.update")
    assert (await client.chat_postMessage(channel=OPS, text="hi"))["ok"]


async def test_fail_has_no_effect(workspace: Workspace, client: AsyncWebClient) -> None:
    """An HTTP status without an effect, or a Slack error code, as asked."""
    workspace.faults.fail("chat.postMessage", status=503)
    workspace.faults.fail("chat.postMessage", error="fatal_error")
    with pytest.raises(SlackApiError) as unavailable:
        await client.chat_postMessage(channel=OPS, text="hi")
    assert unavailable.value.response.status_code == 503
    with pytest.raises(SlackApiError, match="fatal_error"):
        await client.chat_postMessage(channel=OPS, text="hi")
    assert workspace.messages("ops") == []
    assert [call.status for call in workspace.calls_to("chat.postMessage")] == [503, 200]


@pytest.mark.parametrize("mode", ["drop_connection", "500"])
async def test_effect_then_fail_posts_and_loses_the_answer(
    workspace: Workspace, client: AsyncWebClient, mode: str
) -> None:
    """The message is there although the caller saw an error; its metadata finds it again."""
    workspace.faults.effect_then_fail("chat.postMessage", mode=mode)  # type: ignore[arg-type]  # both are modes
    metadata = {"event_type": "sayso", "event_payload": {"key": "k1"}}
    with pytest.raises((SlackApiError, aiohttp.ClientError)):
        await client.chat_postMessage(channel=OPS, text="hi", metadata=metadata)
    found = await client.conversations_history(channel=OPS, include_all_metadata=True)
    assert [m["metadata"]["event_payload"]["key"] for m in found["messages"]] == ["k1"]


async def test_a_refused_call_does_not_use_up_a_lost_answer(
    workspace: Workspace, client: AsyncWebClient
) -> None:
    """`effect_then_fail` waits for a call that has an effect."""
    workspace.faults.effect_then_fail("chat.postMessage", mode="500")
    with pytest.raises(SlackApiError, match="no_text"):
        await client.chat_postMessage(channel=OPS, text="")
    with pytest.raises(SlackApiError) as lost:
        await client.chat_postMessage(channel=OPS, text="hi")
    assert lost.value.response.status_code == 500
    assert len(workspace.messages("ops")) == 1


async def test_slow_makes_a_caller_run_out_of_time(workspace: Workspace) -> None:
    """A call that waits longer than the client allows ends there with a timeout."""
    workspace.faults.slow("auth.test", seconds=30)
    hasty = AsyncWebClient(workspace.bot_token, base_url=workspace.api_url, retry_handlers=[], timeout=1)
    with pytest.raises(TimeoutError):
        await hasty.auth_test()


async def test_reject_token_refuses_everything_until_it_is_accepted_again(
    workspace: Workspace, client: AsyncWebClient
) -> None:
    """A revoked token fails with the error that was asked for."""
    workspace.faults.reject_token("token_revoked")
    with pytest.raises(SlackApiError, match="token_revoked"):
        await client.auth_test()
    workspace.faults.accept_token()
    assert (await client.auth_test())["ok"]


async def test_scopes_can_be_taken_away(workspace: Workspace, client: AsyncWebClient) -> None:
    """A method without its scope says which one it needs and which there are."""
    workspace.faults.scopes = ["chat:write"]
    with pytest.raises(SlackApiError) as refused:
        await client.users_list()
    assert refused.value.response["error"] == "missing_scope"
    assert refused.value.response["needed"] == "users:read"
    assert refused.value.response["provided"] == "chat:write"
    assert (await client.chat_postMessage(channel=OPS, text="hi"))["ok"]


async def test_the_header_with_the_scopes_can_be_missing(
    workspace: Workspace, client: AsyncWebClient
) -> None:
    """`X-OAuth-Scopes` is on every answer unless it is switched off."""
    workspace.faults.set_scopes(["chat:write", "users:read"])
    assert (await client.auth_test()).headers["X-OAuth-Scopes"] == "chat:write,users:read"
    workspace.faults.set_scopes(None, announce=False)
    assert "X-OAuth-Scopes" not in (await client.auth_test()).headers


async def test_another_process_sets_faults_over_http(workspace: Workspace, client: AsyncWebClient) -> None:
    """`POST /_faults` takes the same names, and settings; what it did can be read back."""
    async with aiohttp.ClientSession(workspace.url) as session:
        asked = [
            {"do": "fail", "method": "chat.postMessage", "error": "internal_error"},
            {"set": {"ack_timeout": 0.5, "redelivery_delays": [0, 0.1]}},
        ]
        assert (await session.post("/_faults", json=asked)).status == 200
        with pytest.raises(SlackApiError, match="internal_error"):
            await client.chat_postMessage(channel=OPS, text="hi")
        told = await (await session.get("/_faults")).json()
        calls = await (await session.get("/_calls")).json()
    assert told["struck"] == [{"kind": "fail", "method": "chat.postMessage"}]
    assert calls["calls"][-1]["response"] == {"ok": False, "error": "internal_error"}
    assert workspace.faults.ack_timeout == 0.5
    assert workspace.faults.redelivery_delays == (0, 0.1)


@pytest.mark.parametrize(
    "asked",
    [{"do": "explode"}, {"do": "fail"}, {"set": {"log": []}}, {"do": "disconnect_all", "mode": "x"}, 5],
)
async def test_a_fault_that_does_not_exist_is_refused(workspace: Workspace, asked: object) -> None:
    """Unknown names, missing arguments and private fields are errors, not silence."""
    async with (
        aiohttp.ClientSession(workspace.url) as session,
        session.post("/_faults", json=asked) as answer,
    ):
        assert answer.status == 400
        assert (await answer.json())["error"]


async def test_unknown_modes_are_refused(workspace: Workspace) -> None:
    """A misspelt mode says which modes there are."""
    with pytest.raises(WorkspaceError, match="graceful, abrupt, silent"):
        workspace.faults.disconnect_all("rude")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(WorkspaceError, match="drop_connection, 500"):
        workspace.faults.effect_then_fail("auth.test", mode="404")  # type: ignore[arg-type]  # that is the point


async def test_clear_ends_what_has_not_struck(workspace: Workspace) -> None:
    """After `clear` no fault is left."""
    workspace.faults.fail("*", times=5)
    workspace.faults.lose_ack_next(5)
    workspace.faults.reject_token()
    workspace.faults.clear()
    async with running_app(workspace) as bolt:
        await workspace.post("ana", "ops", "hello")
        await workspace.settled()
        assert len(bolt.events("message")) == 1
    assert (await client_of(workspace).auth_test())["ok"]
    assert workspace.faults.struck == []


async def test_echoes_of_the_app_use_up_no_fault(workspace: Workspace, bolt: RunningApp) -> None:
    """What the app posts comes back to it as an event; a counted fault waits for what people do."""
    workspace.faults.redeliver_next()
    await bolt.client.chat_postMessage(channel=OPS, text="mine")
    await workspace.settled()
    assert workspace.faults.struck == []
    await workspace.post("ana", "ops", "theirs")
    await workspace.wait_for(
        lambda: [m["event"]["text"] for m in bolt.events("message")][-2:] == ["theirs"] * 2
    )
