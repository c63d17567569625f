"""What every provider keeps to: Claude's with the real SDK against the local server, and the scripted one."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from engine.language.codec import decode, encode
from engine.messages.errors import InvalidRequest, ProviderError, StreamCut
from engine.messages.messages import Message, legal, user
from engine.messages.turns import (
    BlockDone,
    Finished,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolStarted,
    TurnEvent,
)
from engine.models.claude import ClaudeProvider
from engine.models.provider import complete
from tests.providers.providerkit import (
    FAILURES,
    ClaudeRig,
    Rig,
    ScriptedRig,
    assistant,
    request,
    tool_result_block,
    tool_uses,
)
from tests.support.claude_server import claude_server

LONG = "The disk of db-1 is full – 98 % — since nine o'clock. \N{FIRE}\n" * 20


@pytest.fixture(params=["claude", "scripted"])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """Each provider in turn; no request of Claude's may have been refused unless the test says so."""
    if request.param == "scripted":
        yield ScriptedRig()
        return
    async with claude_server() as server:
        provider = ClaudeProvider(server.environ())
        try:
            yield ClaudeRig(server, provider)
        finally:
            await provider.close()
        assert server.refused == []


async def heard(rig: Rig, *messages: Message) -> list[TurnEvent]:
    """All events of a turn."""
    async with aclosing(rig.provider.stream(request(*messages))) as events:
        return [event async for event in events]


async def test_text_comes_in_pieces_that_make_the_whole(rig: Rig) -> None:
    """The text deltas joined are the text of the result, which is the last event and has usage and a stop reason."""
    rig.say(LONG)
    events = await heard(rig)
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    last = events[-1]
    assert isinstance(last, Finished)
    assert len(pieces) > 10
    assert "".join(pieces) == LONG == last.result.text
    assert last.result.stop_reason == "end_turn"
    assert last.result.content == ({"type": "text", "text": LONG},)
    assert last.result.usage.input_tokens > 0 < last.result.usage.output_tokens
    assert last.result.model == "claude-sonnet-5-5"
    assert last.result.request_id is not None
    assert [event for event in events if isinstance(event, Finished)] == [last]


async def test_a_tool_is_announced_and_its_input_is_exact(rig: Rig) -> None:
    """A tool call is told when it begins, its input comes in pieces of JSON, and the result has it as an object."""
    given = {
        "host": "db-1",
        "lines": 5,
        "deep": {"z": [1, 2.5, None, True], "a": 'quote " \\ \n ü'},
        "empty": {},
    }
    rig.say("Let me look.", tools=(("logs", given),))
    events = await heard(rig)
    started = [event for event in events if isinstance(event, ToolStarted)]
    last = events[-1]
    assert isinstance(last, Finished)
    (tool,) = tool_uses(last.result)
    assert last.result.stop_reason == "tool_use"
    assert [(event.name, event.id) for event in started] == [("logs", tool["id"])]
    assert encode(tool["input"]) == encode(given), "the same keys in the same order"
    pieces = [event.json for event in events if isinstance(event, ToolInputDelta)]
    assert decode("".join(pieces).encode()) == given
    assert [event.block for event in events if isinstance(event, BlockDone)] == list(last.result.content)


async def test_parallel_tools_keep_their_order_and_have_their_own_ids(rig: Rig) -> None:
    """Several tool calls of a turn are all there, in order, with different ids, those without input too."""
    rig.say(tools=(("logs", {"host": "a"}), ("ask_human", {}), ("logs", {"host": "b"})))
    result = await complete(rig.provider, request())
    assert [(tool["name"], tool["input"]) for tool in tool_uses(result)] == [
        ("logs", {"host": "a"}),
        ("ask_human", {}),
        ("logs", {"host": "b"}),
    ]
    assert len({tool["id"] for tool in tool_uses(result)}) == 3


async def test_a_conversation_goes_on_with_what_was_said_verbatim(rig: Rig) -> None:
    """Thinking, text and tool calls can be stored, read back and sent again, and the next turn is answered."""
    rig.say("I look.", thinking="Where are the logs?", tools=(("logs", {"host": "a"}), ("ask_human", {})))
    rig.say("It is the disk.")
    events: list[TurnEvent] = []
    first = await complete(rig.provider, request(), on_event=events.append)
    thought = first.content[0]
    assert thought["type"] == "thinking"
    assert thought["thinking"] == "Where are the logs?"
    assert thought["signature"]
    assert [event for event in events if isinstance(event, ThinkingDelta)]
    stored = decode(encode([request().messages[0].to_json(), Message("assistant", first.content).to_json()]))
    results = [tool_result_block(tool["id"], "full") for tool in tool_uses(first)]
    conversation = (*map(Message.from_json, stored), user(*results, "And now?"))
    assert legal(conversation) == ()
    second = await complete(rig.provider, request(*conversation))
    assert second.text == "It is the disk."
    assert rig.left() == 0


async def test_an_illegal_conversation_is_refused_before_it_costs_anything(rig: Rig) -> None:
    """A conversation with an open tool call is refused with its place, and no answer is used up."""
    rig.say("never")
    use = {"type": "tool_use", "id": "t1", "name": "logs", "input": {}}
    with pytest.raises(
        InvalidRequest, match=r"messages\[1\].content\[0\]: t1 has no result in the next message"
    ):
        await complete(rig.provider, request(user("a"), assistant(use), user("b")))
    assert rig.left() == 1


@pytest.mark.parametrize("code", sorted(FAILURES))
async def test_an_error_has_its_own_type_and_the_next_turn_works(rig: Rig, code: str) -> None:
    """Each error is told by its code, says whether to try again, and leaves the provider usable."""
    rig.fail(code)
    rig.say("here I am")
    with pytest.raises(ProviderError) as caught:
        await complete(rig.provider, request())
    assert caught.value.code == code
    assert caught.value.retryable == (code in ("rate_limited", "overloaded", "unavailable"))
    assert caught.value.retry_after is None
    assert (await complete(rig.provider, request())).text == "here I am"


async def test_a_rate_limit_says_how_long_to_wait(rig: Rig) -> None:
    """The seconds that the provider asks for are in the error."""
    rig.fail("rate_limited", retry_after=7)
    with pytest.raises(ProviderError) as caught:
        await complete(rig.provider, request())
    assert caught.value.retry_after == 7


async def test_a_stream_without_a_stop_reason_is_a_failure(rig: Rig) -> None:
    """An answer that ends too early is not an answer, may be tried again, and its tokens are known."""
    rig.say(LONG, cut=True)
    events: list[TurnEvent] = []
    with pytest.raises(StreamCut) as caught:
        await complete(rig.provider, request(), on_event=events.append)
    assert caught.value.retryable
    assert caught.value.usage.input_tokens > 0
    assert any(isinstance(event, TextDelta) for event in events)
    assert not any(isinstance(event, Finished) for event in events)


async def test_an_abort_in_the_middle_keeps_the_text_so_far(rig: Rig) -> None:
    """Within a second the turn ends as interrupted, with a beginning of the text that can stay in the conversation."""
    rig.say(LONG)
    rig.say("again")
    abort = asyncio.Event()

    def stop(event: TurnEvent) -> None:
        if isinstance(event, TextDelta):
            abort.set()

    begin = time.monotonic()
    result = await complete(rig.provider, request(), abort, on_event=stop)
    assert time.monotonic() - begin < 1
    assert result.interrupted
    assert result.stop_reason is None
    assert result.text
    assert LONG.startswith(result.text)
    assert len(result.text) < len(LONG)
    assert legal((user("Why?"), Message("assistant", result.content), user("Go on."))) == ()
    assert not (await complete(rig.provider, request(), asyncio.Event())).interrupted


async def test_an_abort_before_the_turn_gives_nothing(rig: Rig) -> None:
    """A turn whose signal is set already ends as interrupted and empty."""
    rig.say("never seen")
    abort = asyncio.Event()
    abort.set()
    result = await complete(rig.provider, request(), abort)
    assert result.interrupted
    assert result.content == ()


async def test_an_abort_in_the_middle_of_a_tool_call_leaves_the_call_out(rig: Rig) -> None:
    """Half a tool call cannot run: only what was whole before it stays."""
    rig.say("I look.", tools=(("logs", {"host": "a-long-name-" * 20}),))
    abort = asyncio.Event()

    def stop(event: TurnEvent) -> None:
        if isinstance(event, ToolInputDelta):
            abort.set()

    result = await complete(rig.provider, request(), abort, on_event=stop)
    assert result.interrupted
    assert result.content == ({"type": "text", "text": "I look."},)


async def test_whoever_leaves_early_can_come_back(rig: Rig) -> None:
    """Closing a stream in its middle leaves the provider usable."""
    rig.say(LONG)
    rig.say("still here")
    async with aclosing(rig.provider.stream(request())) as events:
        await anext(events)
    assert (await complete(rig.provider, request())).text == "still here"


async def test_a_request_is_not_changed_by_being_sent(rig: Rig) -> None:
    """Messages are the same values afterwards as before: marks for caches and the like are not left in them."""
    rig.say("ok")
    asked = request(user("a"), assistant("b"), user("c"), system="Be short.")
    before = copy.deepcopy(asked)
    await complete(rig.provider, asked)
    assert asked == before


async def test_closing_twice_is_no_error(rig: Rig) -> None:
    """A provider may be closed at any time, and again."""
    rig.say("ok")
    await complete(rig.provider, request())
    await rig.provider.close()
    await rig.provider.close()


async def test_two_conversations_at_once_do_not_mix(rig: Rig) -> None:
    """One provider answers several turns at the same time, each as a whole."""
    rig.say("a" * 300)
    rig.say("b" * 300)
    results = await asyncio.gather(*(complete(rig.provider, request()) for _ in range(2)))
    assert sorted(result.text for result in results) == ["a" * 300, "b" * 300]
