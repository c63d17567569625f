"""Claude's provider with the real SDK against the local server: what is sent, every error, every way to be cut."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from engine.messages.errors import (
    AccessDenied,
    BadResponse,
    ContextTooLong,
    InvalidRequest,
    ModelGone,
    Overloaded,
    PrefixMismatch,
    ProviderError,
    RateLimited,
    SpendLimit,
    StreamCut,
    Unavailable,
)
from engine.messages.messages import Message, user
from engine.messages.models import shipped
from engine.messages.request import settings_for
from engine.messages.stream import Assembly
from engine.messages.turns import TextDelta, TurnEvent, TurnRequest, Usage
from engine.models.claude import ClaudeProvider
from engine.models.provider import complete
from tests.providers.providerkit import ClaudeRig, assistant, request, tool_result_block, tool_uses
from tests.providers.strategies import legal_conversations
from tests.support.claude_binding import unmarked
from tests.support.claude_server import KEY, ClaudeServer, Failure, Raw, Reply, call, claude_server, sse, text
from tests.support.proving import tries

LONG = "The disk is full. " * 30


@pytest.fixture
async def server() -> AsyncIterator[ClaudeServer]:
    """A local server."""
    async with claude_server() as running:
        yield running


@pytest.fixture
async def claude(server: ClaudeServer) -> AsyncIterator[ClaudeRig]:
    """A provider that talks to it."""
    provider = ClaudeProvider(server.environ())
    yield ClaudeRig(server, provider)
    await provider.close()


# --- what is sent ------------------------------------------------------------------------------------------


async def test_a_request_says_everything_that_was_asked_for(claude: ClaudeRig) -> None:
    """Model, limits, system, tools and stop sequences arrive as given, with the key and a stream asked for."""
    claude.server.queue(text("ok"))
    await claude.ask(system="Be short.", stop=("END",), max_tokens=77)
    (sent,) = claude.server.requests
    assert sent.refused is None
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.headers["anthropic-version"] == "2026-10-21"
    body = unmarked(sent.body)
    assert body == {
        "model": "claude-sonnet-5-5",
        "max_tokens": 77,
        "stream": True,
        "system": [{"type": "text", "text": "Be short."}],
        "stop_sequences": ["END"],
        "tools": [tool.to_json() for tool in request().tools],
        "messages": [user("Why is it failing?").to_json()],
    }


@settings(max_examples=tries(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(legal_conversations())
def test_messages_arrive_verbatim(messages: list[Message]) -> None:
    """What the server reads is what was given, block by block and key by key, but for the marks of the cache."""

    async def run() -> None:
        async with claude_server() as server:
            server.thoughts = {
                block["signature"]: block["thinking"]
                for message in messages
                for block in message.content
                if block["type"] == "thinking"
            }
            server.queue(text("ok"))
            provider = ClaudeProvider(server.environ())
            await complete(provider, request(*messages))
            await provider.close()
            sent = unmarked(server.requests[0].body)["messages"]
            assert json.dumps(sent) == json.dumps([message.to_json() for message in messages])

    asyncio.run(run())


async def test_what_comes_again_is_marked_for_the_cache(claude: ClaudeRig) -> None:
    """The last tool, the system and the last two messages of the user have a mark, and nothing else has one."""
    claude.server.queue(text("ok"), text("ok"))
    use = call("logs", {}, "t1")
    said = (user("a"), assistant("b"), user("c"), assistant(use), user(tool_result_block("t1", "d"), "e"))
    await claude.ask(*said, system="Be short.")
    body = claude.server.requests[0].body
    marked = [
        (index, place)
        for index, message in enumerate(body["messages"])
        for place, block in enumerate(message["content"])
        if "cache_control" in block
    ]
    assert marked == [(2, 0), (4, 1)]
    assert ["cache_control" in tool for tool in body["tools"]] == [False, True]
    assert "cache_control" in body["system"][0]
    plain = ClaudeProvider(claude.server.environ(), caching=False)
    await complete(plain, request(*said))
    await plain.close()
    assert "cache_control" not in json.dumps(claude.server.requests[1].body)
    assert claude.server.refused == []


def asked(model: str, **wanted: Any) -> TurnRequest:
    """A request with what an agent asks for."""
    return replace(request(), model=model, settings=settings_for(wanted, shipped(model)))


BINDING = {"prefix_mismatch_behavior": "error"}


@pytest.mark.parametrize(
    ("model", "wanted", "thinking", "named"),
    [
        (
            "claude-sonnet-5-5",
            {},
            {"type": "adaptive", "display": "updates", "block_binding": BINDING},
            "thinking-display-updates-2026-08-18,thinking-binding-controls-2026-08-01",
        ),
        ("claude-sonnet-5-5", {"thinking": "off"}, {"type": "between_tools"}, None),
        ("claude-opus-5", {}, {"type": "adaptive", "display": "omitted"}, None),
        ("claude-opus-5", {"thinking": "off"}, {"type": "disabled"}, None),
        (
            "claude-opus-5-5",
            {"thinking": "off"},
            {"type": "adaptive", "display": "updates", "block_binding": BINDING},
            "thinking-display-updates-2026-08-18,thinking-binding-controls-2026-08-01",
        ),
        ("claude-haiku-4-5-20251001", {}, None, None),
    ],
)
async def test_a_model_thinks_as_it_can(
    claude: ClaudeRig,
    model: str,
    wanted: dict[str, Any],
    thinking: Any,
    named: str | None,
) -> None:
    """Notes between tool calls are asked for where there are any, reasoning nowhere; off as far as the model can."""
    claude.server.queue(text("ok"))
    await complete(claude.provider, asked(model, **wanted))
    (sent,) = claude.server.requests
    assert sent.refused is None
    assert sent.body.get("thinking") == thinking
    assert sent.headers.get("anthropic-beta") == named
    assert not {"temperature", "top_p", "top_k", "metadata"} & sent.body.keys()


@pytest.mark.parametrize("told", ["beta", "field"])
async def test_a_feature_that_is_refused_is_left_out_and_the_turn_goes_on(
    claude: ClaudeRig, told: str
) -> None:
    """A name of a beta that is not known any more costs the feature and no agent; it is asked for no second time."""
    words = {
        "beta": "Unexpected value(s) `thinking-display-updates-2026-08-18` for the `anthropic-beta` header",
        "field": "thinking.adaptive.display: Input should be 'summarized' or 'omitted'",
    }
    claude.server.queue(Failure(400, "invalid_request_error", words[told]), text("ok"), text("ok"))
    for _ in range(2):
        assert (await complete(claude.provider, asked("claude-sonnet-5-5"))).text == "ok"
    assert ["display" in sent.body["thinking"] for sent in claude.server.requests] == [True, False, False]
    assert claude.server.requests[1].headers["anthropic-beta"] == "thinking-binding-controls-2026-08-01"


ANSWER = {"type": "object", "properties": {"cause": {"type": "string"}}, "required": ["cause"]}


async def test_effort_form_and_other_models_are_asked_for(claude: ClaudeRig) -> None:
    """As the API takes them, and only of a model that can."""
    claude.server.queue(text("{}"), text("{}"))
    wanted = {"effort": "low", "fallbacks": ["claude-opus-5"], "format": ANSWER}
    await complete(claude.provider, asked("claude-sonnet-5-5", **wanted))
    await complete(claude.provider, asked("claude-haiku-4-5", effort="low", format=ANSWER))
    first, second = (sent.body for sent in claude.server.requests)
    form = {"type": "json_schema", "schema": {**ANSWER, "additionalProperties": False}}
    assert first["output_config"] == {"effort": "low", "format": form}
    assert first["fallbacks"] == [{"model": "claude-opus-5"}]
    assert second["output_config"] == {"format": form}
    assert "server-side-fallback-2026-07-01" in claude.server.requests[0].headers["anthropic-beta"]
    assert claude.server.refused == []


async def test_a_form_that_is_too_complex_is_left_to_the_instructions(claude: ClaudeRig) -> None:
    """The API's limits are its own: the same request goes out without the form."""
    claude.server.queue(Failure(400, "invalid_request_error", "Schema is too complex."), text("{}"))
    await complete(claude.provider, asked("claude-sonnet-5-5", effort="low", format=ANSWER))
    assert claude.server.requests[1].body["output_config"] == {"effort": "low"}


async def test_what_is_repeated_is_kept_for_as_long_as_is_asked(claude: ClaudeRig) -> None:
    """All marks of a request live as long."""
    claude.server.queue(text("ok"), text("ok"))
    said = (user("a"), assistant("b"), user("c"))
    await complete(claude.provider, replace(request(*said), cache="1h"))
    await complete(claude.provider, replace(request(*said), cache="off"))
    kept, plain = (json.dumps(sent.body) for sent in claude.server.requests)
    assert kept.count('"ttl": "1h"') == kept.count("cache_control") == 3
    assert "cache_control" not in plain
    assert claude.server.refused == []


YES, NO = {"supported": True}, {"supported": False}


async def test_what_a_model_takes_is_asked_once_a_day(claude: ClaudeRig) -> None:
    """What the endpoint says counts more than this release; it is kept, and so is that nobody answered."""
    claude.server.models["claude-next"] = {
        "display_name": "Next",
        "created_at": "2026-11-01T00:00:00Z",
        "lifecycle": "deprecated",
        "retires_at": "2027-03-01T00:00:00Z",
        "max_input_tokens": 400_000,
        "max_tokens": 64_000,
        "capabilities": {
            "thinking": {"supported": True, "types": {"adaptive": YES, "disabled": YES, "enabled": NO}},
            "effort": {"supported": True, "low": YES, "high": YES, "max": NO},
            "structured_outputs": NO,
            "compaction": {"supported": True, "summarize": YES},
            "server_tools": {"supported": True, "web_search": YES, "code_execution": NO},
        },
    }
    for _ in range(2):
        found = await claude.provider.facts("claude-next")
    assert (found.context, found.max_tokens, found.thinking) == (400_000, 64_000, ("adaptive", "disabled"))
    assert (found.efforts, found.structured, found.compaction) == (("low", "high"), False, True)
    assert (found.web_search, found.code_execution, found.known) == (True, False, True)
    assert (found.lifecycle, found.retires_at[:10]) == ("deprecated", "2027-03-01")
    for _ in range(2):
        assert await claude.provider.facts("claude-opus-5") == shipped("claude-opus-5")
    assert claude.server.looked_up == ["claude-next", "claude-opus-5"]


async def test_whom_a_call_is_for_is_told_as_a_hash(claude: ClaudeRig) -> None:
    """The same person is the same hash, and nobody can tell who it is without the key."""
    claude.server.queue(text("ok"), text("ok"))
    for _ in range(2):
        await complete(claude.provider, replace(request(), user="U123"))
    first, second = (sent.body["metadata"]["user_id"] for sent in claude.server.requests)
    assert first == second != hashlib.sha256(b"U123").hexdigest()
    assert "U123" not in json.dumps(claude.server.requests[0].body)


async def test_the_key_of_sayso_wins(server: ClaudeServer) -> None:
    """`SAYSO_ANTHROPIC_API_KEY` is used where both are set."""
    server.queue(text("ok"))
    environ = {**server.environ(), "ANTHROPIC_API_KEY": "other", "SAYSO_ANTHROPIC_API_KEY": KEY}
    provider = ClaudeProvider(environ)
    assert (await complete(provider, request())).text == "ok"
    await provider.close()


async def test_without_a_key_nothing_is_sent(server: ClaudeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing key is said before anything else, and the process's own environment is not asked behind our back."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    provider = ClaudeProvider({"ANTHROPIC_BASE_URL": server.url})
    with pytest.raises(AccessDenied, match="set SAYSO_ANTHROPIC_API_KEY or ANTHROPIC_API_KEY"):
        await complete(provider, request())
    assert server.requests == []


async def test_the_key_is_in_no_log_and_in_no_error(
    claude: ClaudeRig, caplog: pytest.LogCaptureFixture
) -> None:
    """With every logger at its most talkative, and an error that quotes the key, nobody gets to read it."""
    caplog.set_level(logging.DEBUG)
    for name in ("anthropic", "httpx2", "httpcore2"):
        caplog.set_level(logging.DEBUG, logger=name)
    claude.server.queue(text("ok"), Failure(401, "authentication_error", f"the key {KEY} is wrong"))
    await claude.ask()
    with pytest.raises(AccessDenied) as caught:
        await claude.ask()
    assert "anthropic" in {record.name.split(".")[0] for record in caplog.records}
    for said in (caplog.text, str(caught.value), repr(caught.value), repr(claude.provider)):
        assert KEY not in said
    assert caught.value.__cause__ is None


# --- what comes back -----------------------------------------------------------------------------------------


async def test_tokens_are_counted_by_kind(claude: ClaudeRig) -> None:
    """What was read from the cache, written for five minutes and for an hour is told apart."""
    usage = {
        "input_tokens": 10,
        "output_tokens": 20,
        "cache_read_input_tokens": 300,
        "cache_creation_input_tokens": 50,
        "cache_creation": {"ephemeral_5m_input_tokens": 40, "ephemeral_1h_input_tokens": 10},
    }
    claude.server.queue(text("ok", usage=usage))
    result = await claude.ask()
    assert result.usage == Usage(10, 20, 300, 40, 10)
    assert result.usage.prompt_tokens == 360


async def test_fields_that_are_not_known_are_kept(claude: ClaudeRig) -> None:
    """Blocks and fields of a later API come back exactly as they were sent."""
    blocks = [
        {"type": "brand_new", "data": {"b": 1, "a": 2}},
        {"type": "redacted_thinking", "data": "AAAA"},
        {"type": "text", "text": "ok", "mood": "fine", "citations": None},
    ]
    claude.server.queue(Reply(blocks))
    result = await claude.ask()
    assert json.dumps(list(result.content)) == json.dumps(blocks)


async def test_blank_text_is_left_out(claude: ClaudeRig) -> None:
    """A block of blank text, which the API sends but does not take back, is not kept."""
    claude.server.queue(Reply([{"type": "text", "text": "\n\n"}, call("logs", {}, "t1")]))
    result = await claude.ask()
    assert [block["type"] for block in result.content] == ["tool_use"]


async def test_half_a_tool_call_at_the_limit_is_left_out(claude: ClaudeRig) -> None:
    """When the answer reaches its limit inside a tool's input, the call is dropped and the stop reason says why."""
    half = {"type": "tool_use", "id": "t1", "name": "logs", "input": '{"host": "db'}
    claude.server.queue(Reply([{"type": "text", "text": "I look."}, half], stop_reason="max_tokens"))
    claude.server.queue(Reply([half]))
    result = await claude.ask()
    assert (result.stop_reason, result.text, tool_uses(result)) == ("max_tokens", "I look.", [])
    with pytest.raises(BadResponse, match="the input of the tool call t1 is no JSON object"):
        await claude.ask()


@pytest.mark.parametrize(("name", "id"), [("functions.logs", "t1"), ("", "t1"), ("logs", "t 1")])
async def test_a_tool_call_that_cannot_be_sent_back_is_a_broken_answer(
    claude: ClaudeRig, name: str, id: str
) -> None:
    """A name or an id that the API takes from nobody would end the conversation at its next call; so it is asked again."""
    claude.server.queue(Reply([call(name, {}, id)]))
    with pytest.raises(BadResponse, match="must be letters, digits, _ and -") as broken:
        await claude.ask()
    assert broken.value.retryable


@pytest.mark.parametrize(
    "reason", ["refusal", "pause_turn", "model_context_window_exceeded", "stop_sequence"]
)
async def test_every_stop_reason_is_passed_on(claude: ClaudeRig, reason: str) -> None:
    """Reasons other than the usual ones are results, not errors: the caller decides."""
    claude.server.queue(text("So far.", stop_reason=reason))
    assert (await claude.ask()).stop_reason == reason


SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "disk full ü"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srv_1",
    "content": [
        {"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "x"}
    ],
}


async def test_blocks_of_the_provider_are_kept_as_they_came(claude: ClaudeRig) -> None:
    """Tools that run at the provider stream their input too; their results, and blocks that nobody knows, come whole; all
    of it is taken back."""
    remote = {"type": "mcp_tool_use", "id": "mcp_1", "name": "q", "server_name": "s", "input": {"a": [1]}}
    said = [SEARCH, FOUND, remote, {"type": "text", "text": "The disk."}]
    claude.server.queue(Reply(said), text("ok"))
    result = await claude.ask()
    assert list(result.content) == said
    assert tool_uses(result) == []
    await claude.ask(user("a"), Message("assistant", result.content[:2]), user("go on"))
    assert claude.server.refused == []


def test_what_is_new_in_a_stream_breaks_nothing() -> None:
    """Events, deltas and blocks that came after this release are ignored or kept."""
    assembly = Assembly("req_1", model="m")
    new = {"type": "brand_new", "data": [1], "input": {}}
    for event in (
        {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 1}}},
        {"type": "weather_report", "weather": "fine"},
        {"type": "content_block_start", "index": 0, "content_block": new},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"b":2}'},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "colour_delta", "colour": "red"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "brand_new"}, "usage": {"output_tokens": 1}},
    ):
        assembly.take(event)
    result = assembly.finish()
    assert result.content == ({"type": "brand_new", "data": [1], "input": {"b": 2}},)
    assert result.stop_reason == "brand_new"


async def test_where_another_model_went_on_only_its_part_is_sent_back(claude: ClaudeRig) -> None:
    """The seam keeps its place; what the first model thought, and the tools it asked for, stay out."""
    thought = {"type": "thinking", "thinking": "", "signature": "s1"}
    seam = {
        "type": "fallback",
        "from": {"model": "claude-sonnet-5-5"},
        "to": {"model": "claude-opus-5"},
        "trigger": {"type": "refusal"},
    }
    after = {"type": "thinking", "thinking": "", "signature": "s2"}
    words = {"type": "text", "text": "Well."}
    claude.server.queue(Reply([thought, words, call("logs", {}, "t1"), seam, after, call("logs", {}, "t2")]))
    result = await claude.ask()
    assert list(result.content) == [words, seam, after, call("logs", {}, "t2")]
    assert result.model == "claude-opus-5"


# --- errors ------------------------------------------------------------------------------------------------


def invalid(message: str, **details: str) -> Failure:
    """A 400."""
    return Failure(400, "invalid_request_error", message, details=details)


BOUND = "messages.1: The block is bound to a different conversation"
MONTH = {"error_code": "enforced_spend_limit_reached"}
COMPACTION = {"error_code": "compaction_unavailable"}
FAILURES = [
    (invalid("nope"), InvalidRequest),
    (invalid("prompt is too long: 9 tokens > 8 maximum"), ContextTooLong),
    (Failure(401, "authentication_error"), AccessDenied),
    (Failure(402, "billing_error"), SpendLimit),
    (Failure(403, "permission_error"), AccessDenied),
    (Failure(404, "not_found_error", "model: claude-nope"), ModelGone),
    (Failure(413, "request_too_large"), ContextTooLong),
    (Failure(422, "something_new"), InvalidRequest),
    (Failure(429, "rate_limit_error"), RateLimited),
    (Failure(500, "api_error"), Unavailable),
    (Failure(502, "something_new"), Unavailable),
    (Failure(504, "timeout_error"), Unavailable),
    (Failure(529, "overloaded_error"), Overloaded),
    # A cause that is named counts more than the status: a 429 that lasts until the month ends is not waited for.
    (Failure(429, "rate_limit_error", details=MONTH), SpendLimit),
    (invalid("on hold", error_code="organization_on_hold"), AccessDenied),
    (invalid(BOUND), PrefixMismatch),
    (invalid("You have reached your spend limit"), SpendLimit),
    (Failure(529, "overloaded_error", details=COMPACTION), Overloaded),
]


@pytest.mark.parametrize(("failure", "kind"), FAILURES)
async def test_a_failure_is_one_of_our_errors(
    claude: ClaudeRig, failure: Failure, kind: type[ProviderError]
) -> None:
    """Each has its type, its cause and the request's id, and is asked for once: nobody retries behind our back."""
    claude.server.queue(failure)
    with pytest.raises(ProviderError, match=failure.message) as caught:
        await claude.ask()
    error = caught.value
    assert (type(error), error.status, error.request_id) == (kind, failure.status, "req_1")
    assert error.error_code == failure.details.get("error_code")
    assert error.retryable == (kind in (RateLimited, Unavailable, Overloaded))
    assert len(claude.server.requests) == 1


async def test_the_provider_says_whether_to_try_again(claude: ClaudeRig) -> None:
    """`x-should-retry` counts more than the status, and milliseconds more than seconds."""
    told = {"image": {"max_side_length_pixels": 8000}}
    details = {"error_code": "image_dimensions_too_large", **told}
    headers = {"x-should-retry": "true", "retry-after-ms": "1500", "retry-after": "2"}
    claude.server.queue(Failure(400, "invalid_request_error", headers=headers, details=details))
    with pytest.raises(InvalidRequest) as caught:
        await claude.ask()
    assert (caught.value.retryable, caught.value.retry_after, caught.value.told) == (True, 1.5, told)


async def test_a_refusal_says_of_what_kind(claude: ClaudeRig) -> None:
    """Category, explanation and the model that would answer are kept."""
    details = {
        "type": "refusal",
        "category": "cyber",
        "explanation": "no",
        "recommended_model": "claude-opus-5",
    }
    claude.server.queue(text("So far.", stop_reason="refusal", stop_details=details))
    assert (await claude.ask()).stop_details == details


@pytest.mark.parametrize(
    ("told", "seconds"), [("2.5", 2.5), ("0", 0), ("soon", None), ("-1", None), ("inf", None)]
)
async def test_retry_after_is_read_in_seconds(claude: ClaudeRig, told: str, seconds: float | None) -> None:
    """Seconds are taken, nonsense is not."""
    claude.server.queue(Failure(429, "rate_limit_error", headers={"retry-after": told}))
    with pytest.raises(RateLimited) as caught:
        await claude.ask()
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    ("type", "kind"),
    [("overloaded_error", Overloaded), ("api_error", Unavailable), ("rate_limit_error", RateLimited)],
)
async def test_an_error_inside_a_stream_is_one_of_ours(
    claude: ClaudeRig, type: str, kind: type[ProviderError]
) -> None:
    """An error after the stream has begun is told by its type, with the tokens used until then."""
    claude.server.queue(text(LONG, error_after=("text_delta", type)))
    with pytest.raises(kind) as caught:
        await claude.ask()
    assert caught.value.request_id == "req_1"
    assert caught.value.usage.input_tokens == 100


async def test_a_gateway_can_have_the_key_in_another_header(server: ClaudeServer) -> None:
    """With `x-api-key` it comes in that header, and in no other one."""
    server.auth = "x-api-key"
    server.queue(text("ok"))
    provider = ClaudeProvider({**server.environ(), "SAYSO_ANTHROPIC_AUTH": "X-API-Key "})
    await complete(provider, request())
    await provider.close()
    (sent,) = server.requests
    assert (sent.headers.get("x-api-key"), sent.headers.get("authorization")) == (KEY, None)


async def test_a_way_to_send_the_key_that_is_none_is_said(server: ClaudeServer) -> None:
    """Nothing is sent in a way that nobody chose."""
    provider = ClaudeProvider({**server.environ(), "SAYSO_ANTHROPIC_AUTH": "basic"})
    with pytest.raises(InvalidRequest, match="SAYSO_ANTHROPIC_AUTH takes bearer or x-api-key, not 'basic'"):
        await complete(provider, request())
    assert server.requests == []


async def test_nobody_there_is_unavailable() -> None:
    """A port where nothing listens is an error that may be tried again and names the address."""
    async with claude_server() as gone:
        environ = gone.environ()
    provider = ClaudeProvider(environ)
    with pytest.raises(Unavailable, match="cannot be reached"):
        await complete(provider, request())
    await provider.close()


async def test_a_redirect_takes_no_key_along() -> None:
    """A redirect of the Messages API is an error: neither the key nor the conversation goes to another address."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 307 T\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        environ = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}", "ANTHROPIC_API_KEY": KEY}
        provider = ClaudeProvider(environ)
        with pytest.raises(ProviderError, match="307"):
            await complete(provider, request())
        await provider.close()
    assert len(asked) == 1


async def test_silence_has_an_end(server: ClaudeServer) -> None:
    """A server that accepts and says nothing, or stops in the middle, is unavailable after the time set."""
    provider = ClaudeProvider(server.environ(), silence=0.2)
    for hold in ("", "message_start", "text_delta"):
        server.queue(text("late", hold_after=hold))
        with pytest.raises(Unavailable, match="stopped in the middle"):
            await complete(provider, request())
    await provider.close()


async def test_no_answer_at_all_has_an_end() -> None:
    """A server that takes the connection and sends not even headers is unavailable after the time set."""
    held: list[asyncio.StreamWriter] = []
    mute = await asyncio.start_server(lambda reader, writer: held.append(writer), "127.0.0.1", 0)
    port = mute.sockets[0].getsockname()[1]
    environ = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}", "ANTHROPIC_API_KEY": KEY}
    provider = ClaudeProvider(environ, silence=0.2)
    with pytest.raises(Unavailable, match="did not answer in time"):
        await complete(provider, request())
    await provider.close()
    for writer in held:
        writer.close()
    mute.close()


@pytest.mark.parametrize(
    "url",
    ["example.com", "ftp://x", "http://", "http://[::1", "http://x:99999", "http://x/\x00", "http://x y"],
)
async def test_an_address_that_is_none_is_named(url: str) -> None:
    """A base URL that cannot be one is said with the variable's name, and is not worth a retry."""
    provider = ClaudeProvider({"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY})
    with pytest.raises(
        InvalidRequest, match=r"ANTHROPIC_BASE_URL must be like https://api\.anthropic\.com, not"
    ):
        await complete(provider, request())


async def test_a_key_that_is_none_is_not_quoted() -> None:
    """A key with a line break or a letter outside of ASCII is refused without being shown."""
    for key in ("sk-secret\nx", "sk-secretü", "sk-secret x"):
        provider = ClaudeProvider({"ANTHROPIC_API_KEY": key})
        with pytest.raises(AccessDenied, match="has characters that are not allowed in a key") as caught:
            await complete(provider, request())
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("abrupt", [False, True], ids=["ended", "dropped"])
@pytest.mark.parametrize(
    "after",
    ["", "message_start", "content_block_start", "text_delta", "content_block_stop", "input_json_delta"],
)
async def test_a_cut_anywhere_is_a_failure(claude: ClaudeRig, after: str, abrupt: bool) -> None:
    """Wherever the stream ends before its stop reason, the turn is `StreamCut` and may be tried again."""
    blocks = [{"type": "text", "text": LONG}, call("logs", {"host": "a-long-name"}, "t1")]
    claude.server.queue(Reply(blocks, cut_after=after, abrupt=abrupt), text("whole"))
    with pytest.raises(StreamCut) as caught:
        await claude.ask()
    assert caught.value.retryable
    assert caught.value.request_id == "req_1"
    assert caught.value.usage.input_tokens == (0 if after == "" else 100)
    assert (await claude.ask()).text == "whole"


START = {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 1, "output_tokens": 1}}}
OPEN = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}
END = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(Raw(b'{"type": "message"}', "application/json"), id="no stream"),
        pytest.param(Raw(b"<html>proxy</html>", "text/html"), id="a page"),
        pytest.param(Raw(b"event: message_start\ndata: {not json\n\n"), id="no JSON"),
        pytest.param(Raw(b"event: message_start\ndata: [1]\n\n"), id="no object"),
        pytest.param(Raw(b"event: message_start\ndata: {}\n\n"), id="no type"),
        pytest.param(Raw(b'event: x\ndata: {"type": "message_start"}\n\n'), id="no message"),
        pytest.param(Raw(b"\xff\xfe\n\nevent: \xff\ndata: \xff\n\n"), id="no UTF-8"),
        pytest.param(Raw(sse(OPEN)), id="block before start"),
        pytest.param(Raw(sse(START) * 2), id="two starts"),
        pytest.param(Raw(sse(START) + sse(DELTA)), id="delta without block"),
        pytest.param(Raw(sse(START) + sse(OPEN) + sse(OPEN)), id="block in block"),
        pytest.param(Raw(sse(START) + sse({**OPEN, "index": 3})), id="wrong index"),
        pytest.param(Raw(sse(START) + sse(OPEN) + sse({**DELTA, "index": 1})), id="delta for another"),
        pytest.param(
            Raw(sse(START) + sse(OPEN) + sse({**DELTA, "delta": {"type": "text_delta", "text": 5}})),
            id="no text",
        ),
        pytest.param(
            Raw(
                sse(START)
                + sse(OPEN)
                + sse({**DELTA, "delta": {"type": "input_json_delta", "partial_json": "{}"}})
            ),
            id="delta of another kind",
        ),
        pytest.param(Raw(sse(START) + sse(OPEN) + sse(DELTA) + sse(END)), id="no end of block"),
    ],
)
async def test_what_is_no_answer_is_refused(claude: ClaudeRig, raw: Raw) -> None:
    """What the protocol does not allow is a `BadResponse`, which may be tried again."""
    claude.server.queue(raw, text("whole"))
    with pytest.raises(BadResponse) as caught:
        await claude.ask()
    assert caught.value.retryable
    assert (await claude.ask()).text == "whole"


# --- abort and leaving -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hold", "kept"), [("message_start", ()), ("", ()), ("text_delta", ({"type": "text", "text": LONG[:9]},))]
)
async def test_an_abort_does_not_wait_for_the_server(
    claude: ClaudeRig, hold: str, kept: tuple[Any, ...]
) -> None:
    """While the server freezes, at its first token too, an abort ends the turn within a second and hangs up."""
    reply = text(LONG, hold_after=hold)
    claude.server.queue(reply)
    abort, heard = asyncio.Event(), asyncio.Event()

    def listen(event: TurnEvent) -> None:
        if isinstance(event, TextDelta):
            heard.set()

    turn = asyncio.ensure_future(complete(claude.provider, request(), abort, on_event=listen))
    await reply.reached.wait()
    if kept:
        await heard.wait()
    begin = time.monotonic()
    abort.set()
    result = await turn
    assert time.monotonic() - begin < 1
    assert result.interrupted
    assert result.content == kept
    await asyncio.wait_for(reply.gone.wait(), 5)


async def test_leaving_early_hangs_up(claude: ClaudeRig) -> None:
    """Whoever closes the stream closes the connection: the model does not continue at our cost."""
    reply = text(LONG, hold_after="text_delta")
    claude.server.queue(reply)
    async with aclosing(claude.provider.stream(request())) as events:
        await anext(events)
    await asyncio.wait_for(reply.gone.wait(), 5)


async def test_a_cancelled_task_hangs_up(claude: ClaudeRig) -> None:
    """Cancelling who waits for a turn cancels the turn."""
    reply = text(LONG, hold_after="message_start")
    claude.server.queue(reply)
    turn = asyncio.ensure_future(complete(claude.provider, request(), asyncio.Event()))
    await reply.reached.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    await asyncio.wait_for(reply.gone.wait(), 5)


async def test_nothing_is_left_running(claude: ClaudeRig) -> None:
    """After turns that ended, failed and were aborted, no task of theirs is left."""
    before = asyncio.all_tasks()
    reply = text(LONG, hold_after="text_delta")
    claude.server.queue(text("ok"), Failure(500, "api_error"), reply)
    abort = asyncio.Event()
    await complete(claude.provider, request(), abort)
    with pytest.raises(Unavailable):
        await complete(claude.provider, request(), abort)
    turn = asyncio.ensure_future(complete(claude.provider, request(), abort))
    await reply.reached.wait()
    abort.set()
    await turn
    await asyncio.wait_for(reply.gone.wait(), 5)
    await claude.provider.close()
    left = {task for task in asyncio.all_tasks() - before if "RequestHandler" not in repr(task)}
    assert left == set()
