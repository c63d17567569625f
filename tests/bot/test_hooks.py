"""Webhooks against senders that are slow, odd or unlucky, over a real socket and a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from bot.compose import listening
from bot.config.library import Library
from bot.config.settings import Address
from bot.serve.hooks import Hooks
from bot.serve.metrics import Metrics, served
from engine.language.codec import decode
from engine.nodes.runtime.secrets import SecretUnavailable
from engine.storage.group_commit import Writer
from engine.storage.open import open_store

NOW = "2026-11-23T12:00:00.000Z"
FLOW = """
flow: heard
inputs: {event: {type: object}}
triggers:
  - {webhook: alerts, verify: bearer, secret: HOOK, channel: "#ops", body_as: event}
nodes: [{id: one, type: noop}]
"""


class Served:
    """The webhooks of a folder with one flow."""

    def __init__(self, folder: Path) -> None:
        (folder / "heard.yml").write_text(FLOW)
        self.store = open_store("memory:", b"k" * 32)
        self.writer = Writer(self.store)
        self.secret: Callable[[str], str] = lambda name: "s3cret"
        self.hooks = Hooks(
            Library(folder),
            self.writer,
            lambda name: self.secret(name),
            lambda: NOW,
            lambda: None,
            lambda: False,
        )
        self.base = ""
        self.stack = AsyncExitStack()

    async def start(self) -> None:
        """Listen; nothing reads metrics here."""
        self.writer.start()
        nothing = cast(Metrics, None)
        there = served(Address("127.0.0.1", 0), nothing, lambda: None, self.hooks)
        self.base = (await self.stack.enter_async_context(there)).removesuffix("/metrics")

    async def post(self, body: bytes, **headers: str) -> int:
        """The status of the answer."""
        given = {"Authorization": "Bearer s3cret", **{k.replace("_", "-"): v for k, v in headers.items()}}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.base}/hooks/alerts", data=body, headers=given) as answer,
        ):
            return answer.status

    async def raw(self, *lines: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which these lines of a request were sent."""
        host, port = self.base.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\r\n".join([b"POST /hooks/alerts HTTP/1.1", b"Host: bot", *lines]))
        await writer.drain()
        return reader, writer

    def stored(self) -> list[Any]:
        """What is to be started."""
        return [decode(row.payload) for row in self.store.inbox.rows()]


@pytest.fixture
async def bot(tmp_path: Path) -> AsyncIterator[Served]:
    """One that listens."""
    found = Served(tmp_path)
    await found.start()
    yield found
    await found.stack.aclose()
    found.writer.close()
    found.store.close()


async def test_a_secret_that_cannot_be_had_is_no_wrong_signature(bot: Served) -> None:
    """A sender gives up at 401 and comes again at 503: what it sends while the vault is away is not lost."""

    def away(name: str) -> str:
        raise SecretUnavailable("the vault is away")

    bot.secret = away
    assert await bot.post(b"{}") == 503
    assert bot.stored() == []


async def test_keys_that_are_not_ascii_are_different_ones(bot: Served) -> None:
    """Two events under two keys of bytes beyond UTF-8 are both started."""
    for key in (b"\xff", b"\xfe"):
        reader, writer = await bot.raw(
            b"Authorization: Bearer s3cret", b"Content-Length: 2", b"Idempotency-Key: " + key, b"", b"{}"
        )
        assert (await reader.readline()).split()[1] == b"202"
        writer.close()
    assert len(bot.stored()) == 2


async def test_the_name_of_an_event_cannot_break_what_is_stored(bot: Served) -> None:
    """It is a header, which nobody signs: bytes that are no text, and a text of thousands of characters."""
    reader, writer = await bot.raw(
        b"Authorization: Bearer s3cret",
        b"Content-Length: 2",
        b"X-GitHub-Event: \xff" + b"e" * 4000,
        b"",
        b"{}",
    )
    assert (await reader.readline()).split()[1] == b"202"
    writer.close()
    (wanted,) = bot.stored()
    assert len(wanted["why"]) < 200


async def test_a_sender_that_stalls_is_let_go(bot: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that does not come holds no handler forever."""
    monkeypatch.setattr(listening, "BODY_SECONDS", 0.01)
    reader, writer = await bot.raw(b"Content-Length: 100", b"", b"{")
    assert (await reader.readline()).split()[1] == b"408"
    writer.close()


async def test_a_sender_that_stalls_does_not_hold_up_the_stop(bot: Served) -> None:
    """Who runs sayso gives it a minute to end; a stop waits for a body a second at most."""
    reader, writer = await bot.raw(b"Content-Length: 100", b"Expect: 100-continue", b"", b"")
    assert b"100" in await reader.readline(), "it waits for the body"
    async with asyncio.timeout(5):
        await bot.stack.aclose()
    writer.close()


async def test_secrets_are_looked_up_one_at_a_time(bot: Served) -> None:
    """Requests that nobody signed cannot take all threads of the process while a vault is slow."""
    import threading

    inside, most, gate = 0, 0, threading.Event()

    def slow(name: str) -> str:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        gate.wait(0.05)
        inside -= 1
        return "s3cret"

    bot.secret = slow
    statuses = await asyncio.gather(*(bot.post(b"{}", Idempotency_Key=str(number)) for number in range(4)))
    assert (statuses, most) == ([202] * 4, 1)


async def test_a_flood_without_signatures_is_a_line_a_minute(
    bot: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may not start anything cannot fill the log, and it says how many there were."""
    now = 0.0
    bot.hooks.steady = lambda: now
    for _ in range(5):
        assert await bot.post(b"{}", Authorization="Bearer wrong") == 401
    now = 61.0
    assert await bot.post(b"{}", Authorization="Bearer wrong") == 401
    said = [each.getMessage() for each in caplog.records if each.name == "sayso.hooks"]
    assert said == [
        "the request to /hooks/alerts is not signed with its secret",
        "the request to /hooks/alerts is not signed with its secret (4 times more since the last line)",
    ]


@pytest.mark.parametrize(
    "body",
    [b'{"amount": 1, "amount": 1000}', b'{"event": [{"host": "a", "host": "b"}]}', b'{"a": 1, "\\u0061": 2}'],
)
async def test_a_key_that_stands_twice_is_refused(bot: Served, body: bytes) -> None:
    """Whoever signed a body may have read the other value: nothing is started with either."""
    assert await bot.post(body) == 400
    assert bot.stored() == []


async def test_an_integer_beyond_64_bits_is_refused(bot: Served) -> None:
    """What a flow could only get as another number starts nothing."""
    assert await bot.post(b'{"id": 18446744073709551616}') == 400
    assert bot.stored() == []


FORM = {"Content_Type": "application/x-www-form-urlencoded; charset=UTF-8"}


async def test_a_form_with_the_json_in_its_payload_is_taken(bot: Served) -> None:
    """GitHub's default content type is a form with one field; another form is refused in words, and plain JSON counts as before."""
    assert await bot.post(b"payload=%7B%22a%22%3A+%22%C3%A4+%26%22%7D", **FORM) == 202
    assert [row["inputs"] for row in bot.stored()] == [{"event": {"a": "ä &"}}]
    for body in (
        b"",
        b"x=%7B%7D",
        b"payload=%7B%7D&payload=%7B%7D",
        b'{"a": 1}',
        b"payload=[]",
        b"payload=x",
        b'{"a": "&payload=%7B%7D&b="}',
    ):
        assert await bot.post(body, **FORM) == 400
    assert await bot.post(b'{"a": 1}') == 202


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("bearer s3cret", 202),
        ("BEARER  s3cret", 202),
        ("Bearer S3cret", 401),
        ("s3cret", 401),
        ("Basic s3cret", 401),
        ("bearer", 401),
    ],
)
async def test_the_scheme_of_a_secret_may_be_written_in_any_case(
    bot: Served, given: str, status: int
) -> None:
    """`bearer` is `Bearer`; another scheme, and another secret, prove nothing."""
    assert await bot.post(b"{}", Authorization=given) == status
