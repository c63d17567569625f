"""What one person sees, reactions, answers to slash commands, and what errors mean."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.intents.session_rows import ephemeral_row, note_row, reaction_row, respond_row
from bot.outbound.destinations import Names
from bot.wire.client import (
    AuthLost,
    NotSent,
    Permanent,
    RateLimited,
    Unknown,
    bot_client,
    classify,
    describe,
)
from engine.run.stored import utc_now
from tests.bot.outbound_kit import Rig
from tests.bot.rendering_cases import HOSTILE
from tests.support.workspace import running_app


def whisper(name: str = "1") -> Any:
    """A row for Ben's eyes."""
    return ephemeral_row(f"ephemeral:{name}", "C0LOCALOPS", "U0LOCALBEN", None, "only you")


# --- at most once ------------------------------------------------------------------------------------------


async def test_an_ephemeral_names_people_and_not_their_addresses(rig: Rig) -> None:
    """A refusal lists approvers as the flow does, by e-mail address; its reader sees whom that means."""
    rig.send()
    text = "Somebody else must approve it: ben@example.com or nobody@example.com."
    await rig.put(ephemeral_row("ephemeral:1", "C0LOCALOPS", "U0LOCALANA", None, text))
    await rig.settled("ephemeral:1")
    (shown,) = rig.workspace.ephemerals("ana")
    assert shown["text"] == "Somebody else must approve it: <@U0LOCALBEN> or nobody@example.com."


async def test_an_ephemeral_whose_answer_is_lost_is_not_sent_again(rig: Rig) -> None:
    """Nobody can look up what one person sees, so it is dropped rather than shown twice."""
    rig.workspace.faults.effect_then_fail("chat.postEphemeral", times=1)
    rig.send()
    await rig.put(whisper())
    assert (await rig.settled("ephemeral:1"))["error"] == "outcome_unknown"
    assert len(rig.workspace.ephemerals("ben")) == 1


async def test_an_ephemeral_that_was_attempted_before_a_crash_is_not_sent_again(rig: Rig) -> None:
    """The next process cannot know, and does not call."""
    await rig.put(whisper())
    await rig.writer.peek(rig.store.outbox.attempt, (await rig.row("ephemeral:1")).id, 0, utc_now())
    rig.send()
    assert (await rig.settled("ephemeral:1"))["state"] == "failed"
    assert rig.calls("chat.postEphemeral") == 0


async def test_an_ephemeral_that_was_limited_is_sent_when_its_time_has_come(rig: Rig) -> None:
    """429 says that nothing was done, so sending again shows it once."""
    rig.workspace.faults.ratelimit("chat.postEphemeral", times=1, retry_after=0)
    rig.send()
    await rig.put(whisper())
    assert (await rig.settled("ephemeral:1"))["state"] == "sent"
    assert len(rig.workspace.ephemerals("ben")) == 1


async def test_a_slash_command_is_answered_at_its_own_address(rig: Rig) -> None:
    """The answer goes to the response URL, is seen by whoever typed the command, and names people, not their addresses."""
    rig.send()
    async with running_app(rig.workspace) as app:
        await rig.workspace.slash("ana", "ops", "/sayso", "status")
        (body,) = [body for body in app.bodies if "command" in body]
        await rig.put(respond_row("respond:1", body["response_url"], "waits for ben@example.com"))
        await rig.settled("respond:1")
    assert [message["text"] for message in rig.workspace.ephemerals("ana")] == ["waits for <@U0LOCALBEN>"]


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/commands",
        "http://hooks.slack.com/commands",
        "https://slack.com.evil.example/x",
        "https://evilslack.com/x",
        "https://hooks.slack.com@evil.example/x",
        "https://hooks.slack.com:8443/x",
        "file:///etc/passwd",
    ],
)
async def test_an_answer_goes_to_slack_and_nowhere_else(rig: Rig, url: str) -> None:
    """A response URL of another host is refused before anything is sent there."""
    rig.send()
    await rig.put(respond_row("respond:1", url, "secret"))
    assert (await rig.settled("respond:1"))["error"] == "response_url_refused"


# --- reactions ---------------------------------------------------------------------------------------------


async def test_a_reaction_that_is_there_already_is_fine(rig: Rig) -> None:
    """Reactions can be repeated without harm: a lost answer is simply tried again."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    rig.workspace.faults.effect_then_fail("reactions.add", times=1)
    rig.send()
    await rig.put(reaction_row("reaction:1", "C0LOCALOPS", ts, "eyes"))
    assert (await rig.settled("reaction:1"))["state"] == "sent"
    (message,) = rig.workspace.messages("ops")
    assert [reaction["name"] for reaction in message["reactions"]] == ["eyes"]


# --- notes -------------------------------------------------------------------------------------------------


async def test_a_note_may_bring_its_own_blocks(rig: Rig) -> None:
    """Buttons of a note are shown as they were given, and the note is still found by its key."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    element = {
        "type": "button",
        "action_id": "sayso:keep",
        "text": {"type": "plain_text", "text": "Keep going"},
    }
    blocks = [{"type": "actions", "elements": [element]}]
    rig.workspace.faults.effect_then_fail("chat.postMessage", times=1)
    rig.send()
    await rig.put(note_row("note:1", "lane", "C0LOCALOPS", ts, "Sure?", blocks=blocks))
    await rig.settled("note:1")
    (message,) = rig.posts("Keep going")
    assert message["text"] == "Sure?"


async def test_control_characters_in_a_note_are_spelled_out(rig: Rig) -> None:
    """What would reorder a line is shown as its code, even where the text was said to be safe."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    rig.send()
    await rig.put(note_row("note:1", "lane", "C0LOCALOPS", ts, HOSTILE.replace("<", "&lt;")))
    await rig.settled("note:1")
    assert "\\u202e" in rig.posts("evil")[0]["text"]


class Time:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


# --- names -------------------------------------------------------------------------------------------------


async def test_an_address_that_slack_does_not_know_keeps_no_other_from_being_mentioned(rig: Rig) -> None:
    """What cannot be looked up is left out, and is not asked for again each time a card changes."""
    names = Names(rig.client, Time())
    entries = ["nobody@example.com", "ben@example.com", "@sre", "U0LOCALANA", "channel"]
    wanted = {"ben@example.com": "U0LOCALBEN", "@sre": "S0LOCALSRE"}
    assert await names(entries) == wanted
    assert await names(entries) == wanted
    assert rig.calls("users.lookupByEmail") == 2
    assert rig.calls("usergroups.list") == 1


async def test_looking_somebody_up_takes_no_longer_than_it_may(rig: Rig) -> None:
    """A prompt is shown without mentions rather than much later."""
    rig.workspace.faults.slow("usergroups.list", 5)
    assert await Names(rig.client, Time(), most_seconds=0.05)(["@sre"]) == {}


# --- what errors mean --------------------------------------------------------------------------------------


def refusal(status: int, data: Any, **headers: str) -> SlackApiError:
    """What slack_sdk raises for such an answer."""
    response = AsyncSlackResponse(
        client=None,
        http_verb="POST",
        api_url="",
        req_args={},
        data=data,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        status_code=status,
    )
    return SlackApiError("The request failed.", response)  # type: ignore[no-untyped-call]  # slack_sdk's


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (refusal(200, {"ok": False, "error": "channel_not_found"}), Permanent),
        (refusal(200, {"ok": False, "error": "invalid_auth"}), AuthLost),
        (refusal(200, {"ok": False, "error": "account_inactive"}), AuthLost),
        (refusal(200, {"ok": False, "error": "internal_error"}), Unknown),
        (refusal(429, {"ok": False, "error": "ratelimited"}, Retry_After="7"), RateLimited),
        (refusal(503, "down"), Unknown),
        (refusal(200, "<html>"), Unknown),
        (aiohttp.ServerDisconnectedError(), Unknown),
        (TimeoutError(), Unknown),
        (ConnectionResetError(), Unknown),
        (aiohttp.ConnectionTimeoutError(), NotSent),
    ],
)
def test_errors_are_told_apart_by_what_may_have_happened(error: Exception, meaning: type[Exception]) -> None:
    """Refused for good, later, not sent, token gone; and where nobody can know: unknown."""
    assert type(classify(error)) is meaning


def test_the_time_to_wait_is_the_one_that_slack_names() -> None:
    """Retry-After is read whatever its case; without it the wait is a long one."""
    named = classify(refusal(429, {}, retry_after="7"))
    silent = classify(refusal(429, {}))
    assert isinstance(named, RateLimited)
    assert isinstance(silent, RateLimited)
    assert (named.retry_after, silent.retry_after) == (7.0, 30.0)


async def test_a_server_that_is_not_there_got_nothing() -> None:
    """A connection that could not be made is told apart from one that was lost."""
    with pytest.raises(Exception) as failure:  # aiohttp's own; classified below
        await bot_client("xoxb-1", "http://127.0.0.1:1/api/").auth_test()
    assert isinstance(classify(failure.value), NotSent)
    said = describe(failure.value, token="SLACK_BOT_TOKEN", api_url="http://127.0.0.1:1/api/")
    assert "http://127.0.0.1:1/api/" in said
    assert "SLACK_API_URL" in said


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("invalid_auth", "does not accept SLACK_BOT_TOKEN"),
        ("missing_scope", "lacks a required permission"),
        ("team_added_to_org", "SLACK_API_URL"),
        ("access_denied", "refuses SLACK_BOT_TOKEN"),
    ],
)
def test_a_failed_start_says_what_to_do(code: str, words: str) -> None:
    """Whoever starts the bot reads which setting is wrong and what is wrong with it."""
    error = refusal(200, {"ok": False, "error": code, "needed": "chat:write"})
    assert words in describe(error, token="SLACK_BOT_TOKEN", api_url="https://slack.com/api/")


def test_the_client_repeats_nothing_by_itself() -> None:
    """slack_sdk repeats a request after a lost connection unless told not to."""
    assert bot_client("xoxb-1", "https://slack.com/api/").retry_handlers == []
