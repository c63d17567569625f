"""Streamed messages through the real slack_sdk: how they grow, who must be named, when they end, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser
from slack_sdk.errors import SlackApiError
from slack_sdk.models.messages.chunk import MarkdownTextChunk, TaskUpdateChunk
from slack_sdk.web.async_client import AsyncWebClient

from tests.support.acting import Workspace
from tests.support.browser import opened_page
from tests.support.workspace import Json, client_of, running_workspace

OPS = "C0LOCALOPS"


class Clock:
    """A workspace's clock that stands still until it is put forward."""

    def __init__(self) -> None:
        self.now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest_asyncio.fixture
async def clock() -> Clock:
    """The clock of the workspace."""
    return Clock()


@pytest_asyncio.fixture
async def moved(clock: Clock) -> AsyncIterator[Workspace]:
    """A workspace with a clock that can be put forward."""
    async with running_workspace(clock=clock) as workspace:
        yield workspace


async def _error(call: Awaitable[Any]) -> str:
    with pytest.raises(SlackApiError) as refused:
        await call
    return str(refused.value.response.data["error"])


async def _direct(workspace: Workspace) -> tuple[AsyncWebClient, Json]:
    """A client, and where a stream goes in Ana's direct message."""
    client = client_of(workspace)
    opened = await client.conversations_open(users=workspace.user("ana").id)
    channel = opened["channel"]["id"]
    root = await workspace.post("ana", channel, "hello")
    return client, {"channel": channel, "thread_ts": root}


def _stored(workspace: Workspace, place: Json, ts: str) -> Json:
    found = workspace.state.message(place["channel"], ts)
    assert found is not None
    return found


async def test_a_stream_grows_and_ends_as_an_ordinary_message(moved: Workspace) -> None:
    """What is started, appended and brought by the stop stands in one message; its metadata can be read, and it can be edited."""
    client, place = await _direct(moved)
    started = await client.chat_startStream(**place, markdown_text="**Looking**")
    where = {"channel": place["channel"], "ts": started["ts"]}
    await client.chat_appendStream(**where, markdown_text=" at the")
    assert _stored(moved, place, started["ts"])["streaming_state"] == "in_progress"
    metadata = {"event_type": "post", "event_payload": {"key": "k"}}
    stopped = await client.chat_stopStream(**where, markdown_text=" logs.", metadata=metadata)
    assert stopped["message"]["text"] == "**Looking** at the logs."
    assert stopped["message"]["streaming_state"] == "completed"
    replies = await client.conversations_replies(
        channel=place["channel"], ts=place["thread_ts"], include_all_metadata=True
    )
    assert replies["messages"][-1]["metadata"] == metadata
    await client.chat_update(**where, text="Done.")
    assert _stored(moved, place, started["ts"])["text"] == "Done."


async def test_a_stream_ends_five_minutes_after_it_began(moved: Workspace, clock: Clock) -> None:
    """Appending does not prolong a stream: after five minutes append and stop are refused, and it can be edited."""
    client, place = await _direct(moved)
    ts = (await client.chat_startStream(**place, markdown_text="a"))["ts"]
    where = {"channel": place["channel"], "ts": ts}
    clock.now += 299
    await client.chat_appendStream(**where, markdown_text="b")
    clock.now += 2
    assert (
        await _error(client.chat_appendStream(**where, markdown_text="c")) == "message_not_in_streaming_state"
    )
    assert await _error(client.chat_stopStream(**where)) == "message_not_in_streaming_state"
    await client.chat_update(**where, text="abc")


async def test_a_running_stream_cannot_be_edited(moved: Workspace) -> None:
    """chat.update of a message that is streamed is refused and changes nothing."""
    client, place = await _direct(moved)
    ts = (await client.chat_startStream(**place, markdown_text="a"))["ts"]
    call = client.chat_update(channel=place["channel"], ts=ts, text="b")
    assert await _error(call) == "streaming_state_conflict"
    assert _stored(moved, place, ts)["text"] == "a"


async def test_in_a_channel_the_reader_must_be_named(moved: Workspace) -> None:
    """A stream in a channel names a person and their team; in a direct message it needs neither."""
    client = client_of(moved)
    root = await moved.post("ana", "ops", "hello")
    place: Json = {"channel": OPS, "thread_ts": root}
    ana = moved.user("ana").id
    assert await _error(client.chat_startStream(**place)) == "missing_recipient_user_id"
    call = client.chat_startStream(**place, recipient_user_id=ana)
    assert await _error(call) == "missing_recipient_team_id"
    await client.chat_startStream(**place, recipient_user_id=ana, recipient_team_id=moved.team_id)


async def test_what_slack_would_refuse_is_refused(moved: Workspace) -> None:
    """No thread, somebody else's message, nothing to append, too much text, and text after chunks: each has Slack's name."""
    client, place = await _direct(moved)
    alone = client.chat_startStream(channel=place["channel"], thread_ts="")
    assert await _error(alone) == "invalid_thread_ts"
    theirs = {"channel": place["channel"], "ts": place["thread_ts"]}
    assert await _error(client.chat_appendStream(**theirs, markdown_text="x")) == "message_not_owned_by_app"
    ts = (await client.chat_startStream(**place, markdown_text="a"))["ts"]
    where = {"channel": place["channel"], "ts": ts}
    assert await _error(client.chat_appendStream(**where)) == "no_text"
    assert await _error(client.chat_appendStream(**where, markdown_text="x" * 12_001)) == "msg_too_long"
    chunks = [MarkdownTextChunk(text="b")]
    assert await _error(client.chat_appendStream(**where, chunks=chunks)) == "streaming_mode_mismatch"
    broken = client.chat_startStream(**place, chunks=[{"type": "song"}])
    assert await _error(broken) == "invalid_chunks"


async def test_the_helper_of_the_sdk_works(moved: Workspace) -> None:
    """slack_sdk's own `chat_stream` streams text and tasks; a task that is told of again is replaced."""
    client, place = await _direct(moved)
    stream = await client.chat_stream(**place, buffer_size=1)
    await stream.append(markdown_text="Hello")
    await stream.append(chunks=[TaskUpdateChunk(id="1", title="Logs", status="in_progress")])
    await stream.stop(chunks=[TaskUpdateChunk(id="1", title="Logs", status="complete")])
    message = _stored(moved, place, str(stream.ts))
    assert message["text"] == "Hello"
    assert [block["type"] for block in message["blocks"]] == ["markdown", "context"]
    assert message["blocks"][1]["elements"][0]["text"] == "● Logs"


async def test_streams_have_faults_and_scopes_like_every_method(moved: Workspace) -> None:
    """Without `chat:write` a stream is refused, and a limit strikes it on demand."""
    client, place = await _direct(moved)
    moved.faults.set_scopes(["im:write"])
    assert await _error(client.chat_startStream(**place)) == "missing_scope"
    moved.faults.set_scopes(None)
    moved.faults.ratelimit("chat.startStream")
    assert await _error(client.chat_startStream(**place)) == "ratelimited"
    await client.chat_startStream(**place)


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="session")
async def test_the_page_draws_a_stream_while_it_grows(browser: Browser, seen: Workspace) -> None:
    """The page shows the text as it comes, marked as still being written, and without the mark once it has ended."""
    client = client_of(seen)
    root = await seen.post("ana", "ops", "hello")
    async with opened_page(browser, f"{seen.url}/#/{OPS}/{root}?as={seen.user('ana').id}") as page:
        place: Json = {"channel": OPS, "thread_ts": root, "recipient_team_id": seen.team_id}
        place["recipient_user_id"] = seen.user("ana").id
        ts = (await client.chat_startStream(**place, markdown_text="Looking at **the"))["ts"]
        growing = page.get_by_test_id("streaming")
        await growing.wait_for()
        await client.chat_appendStream(channel=OPS, ts=ts, markdown_text=" logs**")
        said = page.get_by_text("the logs").first
        await said.wait_for()
        await client.chat_stopStream(channel=OPS, ts=ts)
        await growing.wait_for(state="detached")
        assert await said.is_visible()
