"""Socket Mode frame by frame: hello, tickets, turns, acknowledgements, redelivery, the three ways to go."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import aiohttp
import pytest

from bot.workspace import NotAcknowledged
from tests.support.acting import Workspace
from tests.support.workspace import (
    RunningApp,
    actions,
    bare_socket,
    button,
    client_of,
    running_app,
)


async def test_hello_counts_the_connections(workspace: Workspace) -> None:
    """The first frame is a hello with the number of sockets and the app's id."""
    async with bare_socket(workspace) as first, bare_socket(workspace) as second:
        assert first.hello["type"] == "hello"
        assert first.hello["num_connections"] == 1
        assert first.hello["connection_info"] == {"app_id": workspace.app_id}
        assert second.hello["num_connections"] == 2
    await workspace.wait_for(lambda: not workspace.core.sockets.connections)


async def test_a_ticket_opens_one_socket(workspace: Workspace) -> None:
    """The address from apps.connections.open works once."""
    opened = await client_of(workspace).apps_connections_open(app_token=workspace.app_token)
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(opened["url"]) as socket:
            assert (await socket.receive_json())["type"] == "hello"
        with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
            await session.ws_connect(opened["url"])


async def test_pings_are_answered(workspace: Workspace) -> None:
    """A ping of the app comes back as a pong with the same payload."""
    async with bare_socket(workspace, autoping=False) as socket:
        await socket.socket.ping(b"sdk-ping-pong:1.5")
        frame = await socket.socket.receive(5)
    assert frame.type is aiohttp.WSMsgType.PONG
    assert frame.data == b"sdk-ping-pong:1.5"


async def test_the_eleventh_connection_is_sent_away(workspace: Workspace) -> None:
    """Ten sockets are allowed; the next one gets a disconnect frame and is closed."""
    async with AsyncExitStack() as stack:
        for _ in range(10):
            await stack.enter_async_context(bare_socket(workspace))
        extra = await stack.enter_async_context(bare_socket(workspace))
        assert extra.hello == {
            "type": "disconnect",
            "reason": "too_many_websockets",
            "debug_info": {"host": "local-workspace"},
        }
        assert len(workspace.core.sockets.connections) == 10


async def test_each_envelope_goes_to_one_socket_in_turn(workspace: Workspace) -> None:
    """Two sockets share the events; none comes twice."""
    async with running_app(workspace, sockets=2) as bolt:
        for number in range(6):
            await workspace.post("ana", "ops", f"message {number}")
        await workspace.settled()
        texts = sorted(body["event"]["text"] for body in bolt.events("message"))
    assert texts == [f"message {number}" for number in range(6)]
    used = {attempt.connection for d in workspace.deliveries for attempt in d.attempts}
    assert len(used) == 2


async def test_an_event_without_acknowledgement_comes_again_three_times(workspace: Workspace) -> None:
    """The same event id in new envelopes, with attempt and reason, and then no more."""
    workspace.faults.ack_timeout = 0.05
    async with bare_socket(workspace) as socket:
        await workspace.post("ana", "ops", "hello?")
        seen = [await socket.receive() for _ in range(4)]
        await workspace.settled()
        assert await socket.drain(workspace) == []
    assert [frame["retry_attempt"] for frame in seen] == [0, 1, 2, 3]
    assert [frame["retry_reason"] for frame in seen] == ["", "timeout", "timeout", "timeout"]
    assert len({frame["envelope_id"] for frame in seen}) == 4
    assert len({frame["payload"]["event_id"] for frame in seen}) == 1
    assert workspace.deliveries[0].state == "failed"


async def test_redelivery_ends_with_the_acknowledgement(workspace: Workspace) -> None:
    """An event that is acknowledged at the second attempt is not sent a third time."""
    workspace.faults.ack_timeout = 0.05
    async with bare_socket(workspace) as socket:
        await workspace.post("ana", "ops", "hello?")
        await socket.receive()
        await socket.ack(await socket.receive())
        await workspace.settled()
        assert await socket.drain(workspace) == []
    assert workspace.deliveries[0].state == "acked"
    assert len(workspace.deliveries[0].attempts) == 2


async def test_a_late_acknowledgement_counts_for_nothing(workspace: Workspace) -> None:
    """After the time is over the event comes again, whatever is said about the first envelope."""
    workspace.faults.ack_timeout = 0.05
    async with bare_socket(workspace) as socket:
        await workspace.post("ana", "ops", "hello?")
        first = await socket.receive()
        second = await socket.receive()
        await socket.ack(first)
        third = await socket.receive()
        await socket.ack(third)
        await workspace.settled()
    assert (second["retry_attempt"], third["retry_attempt"]) == (1, 2)


async def test_a_socket_that_closes_first_gives_its_event_to_another(workspace: Workspace) -> None:
    """The event of a socket that went away comes at once on the other one."""
    async with AsyncExitStack() as stack:
        pair = [await stack.enter_async_context(bare_socket(workspace)) for _ in range(2)]
        await workspace.post("ana", "ops", "hello?")
        await workspace.wait_for(lambda: workspace.deliveries[0].attempts)
        used = workspace.deliveries[0].attempts[0].connection
        numbers = [connection.number for connection in workspace.core.sockets.connections]
        gone, other = pair if used == numbers[0] else pair[::-1]
        await gone.socket.close()
        again = await other.receive()
        await other.ack(again)
        await workspace.settled()
    assert (again["retry_attempt"], again["retry_reason"]) == (1, "connection_failed")


async def test_an_event_whose_only_socket_closed_waits_for_the_next(workspace: Workspace) -> None:
    """An unacknowledged event is delivered at the reconnect."""
    async with bare_socket(workspace) as socket:
        await workspace.post("ana", "ops", "hello?")
        await socket.receive()
    async with bare_socket(workspace) as socket:
        again = await socket.receive()
        await socket.ack(again)
        await workspace.settled()
    assert again["retry_attempt"] == 1


async def test_events_of_an_outage_are_gone(workspace: Workspace) -> None:
    """What is posted while no socket is connected is not delivered later: only the history has it."""
    await workspace.post("ana", "ops", "anybody?")
    async with bare_socket(workspace) as socket:
        assert await socket.drain(workspace) == []
    assert workspace.deliveries[0].state == "dropped"
    history = await client_of(workspace).conversations_history(channel="C0LOCALOPS")
    assert [m["text"] for m in history["messages"]] == ["anybody?"]


async def test_events_of_a_short_outage_can_be_kept(workspace: Workspace) -> None:
    """With `deliver_after_reconnect` they come when a socket is there."""
    workspace.faults.deliver_after_reconnect = True
    await workspace.post("ana", "ops", "anybody?")
    async with bare_socket(workspace) as socket:
        assert (await socket.receive())["payload"]["event"]["text"] == "anybody?"


async def test_kept_events_are_dropped_when_the_window_ends(workspace: Workspace) -> None:
    """Without a reconnect in time the event is dropped."""
    workspace.faults.deliver_after_reconnect = True
    workspace.faults.reconnect_window = 0.05
    await workspace.post("ana", "ops", "anybody?")
    await workspace.settled()
    assert workspace.deliveries[0].state == "dropped"


async def test_a_click_is_sent_once(workspace: Workspace) -> None:
    """An interaction that nobody acknowledges fails for the person and never comes again."""
    workspace.faults.ack_timeout = 0.05
    posted = await client_of(workspace).chat_postMessage(
        channel="#ops", text="?", blocks=[actions(button("Go", "go"))]
    )
    async with bare_socket(workspace) as socket:
        with pytest.raises(NotAcknowledged, match="operation_timeout"):
            await workspace.press("ana", "ops", posted["ts"], text="Go")
        assert (await socket.receive())["type"] == "interactive"
        assert await socket.drain(workspace) == []
    assert workspace.deliveries[-1].state == "failed"


async def test_a_graceful_disconnect_is_followed_by_a_reconnect(
    workspace: Workspace, bolt: RunningApp
) -> None:
    """The app is asked to refresh, connects again, and hears the next message."""
    before = workspace.core.sockets.connections[0]
    workspace.faults.disconnect_all("graceful")
    await workspace.wait_for(
        lambda: (now := workspace.core.sockets.connections) and before not in now and not now[0].draining
    )
    await workspace.post("ana", "ops", "still there?")
    await workspace.wait_for(lambda: bolt.events("message"))


@pytest.mark.parametrize("mode", ["abrupt", "silent"])
async def test_a_lost_connection_is_noticed_and_replaced(workspace: Workspace, mode: str) -> None:
    """A cut connection, and one that plays dead, end with a new socket and events on it."""
    async with running_app(workspace, ping_interval=0.4) as bolt:
        before = workspace.core.sockets.connections[0]
        workspace.faults.disconnect_all(mode)  # type: ignore[arg-type]  # both are modes
        await workspace.wait_for(
            lambda: (now := workspace.core.sockets.connections) and before not in now, timeout=20
        )
        await workspace.post("ana", "ops", "still there?")
        await workspace.wait_for(lambda: bolt.events("message"))


async def test_frames_that_are_no_acknowledgement_are_ignored(workspace: Workspace) -> None:
    """Rubbish on the socket neither ends it nor acknowledges anything."""
    async with bare_socket(workspace) as socket:
        await workspace.post("ana", "ops", "hello?")
        envelope = await socket.receive()
        for rubbish in ("no json", "[]", '{"envelope_id": "unknown"}', '{"envelope_id": 5}', "{}"):
            await socket.socket.send_str(rubbish)
        await socket.ack(envelope)
        await workspace.settled()
    assert workspace.deliveries[0].state == "acked"
    assert len(workspace.deliveries[0].attempts) == 1


async def test_the_acknowledgements_payload_is_recorded(workspace: Workspace) -> None:
    """`ack_payload` holds what the app sent back."""
    async with bare_socket(workspace) as socket:
        typed = asyncio.create_task(workspace.slash("ana", "ops", "/sayso"))
        await socket.ack(await socket.receive(), {"text": "hi"})
        await typed
    assert workspace.deliveries[-1].ack_payload == {"text": "hi"}
