"""Slack's published limits, as a fault: what is refused, for how long, and that a moved clock is enough to see it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace.limits import POST, RESPONSE, Limits
from tests.support.acting import Workspace
from tests.support.workspace import actions, button, client_of, running_app, running_workspace

OPS, RELEASES = "C0LOCALOPS", "C0LOCALREL"


@dataclass
class Clock:
    """A clock that the test moves."""

    now: float = 1_790_000_000.0

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The clock of `limited`."""
    return Clock()


@pytest_asyncio.fixture
async def limited(clock: Clock) -> AsyncIterator[Workspace]:
    """A workspace with Slack's limits."""
    async with running_workspace(clock=clock) as workspace:
        workspace.faults.limit()
        yield workspace


@pytest.fixture
def client(limited: Workspace) -> AsyncWebClient:
    """The real client, without retries of its own."""
    return client_of(limited)


async def refused_for(call: Any) -> int:
    """Seconds of `Retry-After` of a call that is refused with 429; 0 when it is not."""
    try:
        await call
        return 0
    except SlackApiError as problem:
        refused = problem.response
    assert (refused.status_code, refused["error"]) == (429, "ratelimited")
    return int(refused.headers["Retry-After"])


async def test_a_method_has_so_many_calls_in_any_minute(client: AsyncWebClient, clock: Clock) -> None:
    """The twenty-first call within sixty seconds waits until the first is a minute old."""
    for _ in range(20):
        assert not await refused_for(client.users_list())
        clock.now += 1
    assert await refused_for(client.users_list()) == 40
    assert not await refused_for(client.users_info(user="U0LOCALANA"))
    clock.now += 39
    assert await refused_for(client.users_list())
    clock.now += 21
    assert not await refused_for(client.users_list())


async def test_posts_have_one_a_second_and_five_ahead_in_each_channel(
    limited: Workspace, client: AsyncWebClient, clock: Clock
) -> None:
    """The sixth post at once is refused for a second, in this channel only."""
    for _ in range(5):
        assert not await refused_for(client.chat_postMessage(channel=OPS, text="x"))
    assert await refused_for(client.chat_postMessage(channel=OPS, text="x")) == 1
    assert not await refused_for(client.chat_postMessage(channel=RELEASES, text="x"))
    clock.now += 1
    assert not await refused_for(client.chat_postMessage(channel=OPS, text="x"))
    assert len(limited.messages("ops")) == 6


def test_posts_have_a_limit_of_the_workspace_too() -> None:
    """However many channels there are: 300 posts a minute."""
    limits = Limits()
    limits.factor = 1.0
    waits = [limits.wait(POST, f"C{number}", 10.0) for number in range(301)]
    assert waits == [0] * 300 + [60]


def test_refused_calls_count() -> None:
    """Whoever continues calling is refused for longer, unless the server is told not to count what it refused."""
    taken = {}
    for counts in (True, False):
        limits = Limits()
        limits.factor, limits.counts_refused = 1.0, counts
        assert not any(limits.wait("chat.update", "", 0.0) for _ in range(50))
        waits = [limits.wait("chat.update", "", float(second)) for second in range(1, 122)]
        taken[counts] = waits.count(0)
        assert limits.shown(122.0)[0]["refused"] == 121 - waits.count(0)
    assert taken[True] == 0
    assert taken[False] == 52


async def test_whoever_was_told_to_wait_is_refused_until_then(client: AsyncWebClient, clock: Clock) -> None:
    """`Retry-After` holds for the method, whoever calls it."""
    for _ in range(6):
        waits = await refused_for(client.chat_postMessage(channel=OPS, text="x"))
    assert waits == 1
    clock.now += 0.9
    assert await refused_for(client.chat_postMessage(channel=OPS, text="x"))


async def test_limits_change_while_it_runs(limited: Workspace, client: AsyncWebClient) -> None:
    """Another process halves them, and ends them; what was counted stays."""
    async with aiohttp.ClientSession(limited.url) as session:
        for _ in range(10):
            assert not await refused_for(client.users_list())
        await session.post("/_faults", json={"do": "limit", "factor": 0.5})
        assert await refused_for(client.users_list()) == 60
        told = await (await session.get("/_faults")).json()
        assert {"method": "users.list", "used": 11, "most": 10, "refused": 1, "wait": 60} in told["limits"]
        assert told["struck"] == [{"kind": "limit", "method": "users.list", "channel": ""}]
        await session.post("/_faults", json={"do": "limit", "factor": None})
        assert not await refused_for(client.users_list())
        assert (await session.post("/_faults", json={"do": "limit", "factor": 0})).status == 400


async def test_a_response_url_is_limited_recorded_and_fails_like_a_method(limited: Workspace) -> None:
    """Its uses are calls, one a second and channel with five ahead, and a fault can name it."""
    async with running_app(limited) as bolt, aiohttp.ClientSession() as session:

        async def answer() -> int:
            async with session.post(bolt.of("block_actions")[-1]["response_url"], json={"text": "x"}) as told:
                return told.status

        posted = await bolt.client.chat_postMessage(
            channel=OPS, text="?", blocks=[actions(button("Go", "go"))]
        )
        await limited.press("ana", "ops", posted["ts"], text="Go")
        limited.faults.fail(RESPONSE, status=503)
        assert await answer() == 503
        assert [await answer() for _ in range(5)] == [200] * 4 + [429]
        assert [call.status for call in limited.calls_to(RESPONSE)] == [503, *[200] * 4, 429]


async def test_a_method_can_be_limited_for_some_time(
    limited: Workspace, client: AsyncWebClient, clock: Clock
) -> None:
    """However many calls come within it: each is refused, with the same `Retry-After`."""
    limited.faults.ratelimit("users.list", retry_after=60, seconds=300)
    for _ in range(3):
        assert await refused_for(client.users_list()) == 60
        clock.now += 99
    clock.now += 99
    assert not await refused_for(client.users_list())


def test_without_limits_nothing_is_counted() -> None:
    """A workspace without the fault refuses nothing."""
    limits = Limits()
    assert not any(limits.wait("users.list", "", 0.0) for _ in range(100))
    assert limits.shown(0.0) == []
