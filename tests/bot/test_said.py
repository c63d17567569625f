"""What an agent that is called into a place is told of the messages there."""

from __future__ import annotations

from typing import Any, cast

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.inbound.triggers import read_by_people
from bot.wire.said import Said

ALERT = {"type": "section", "text": {"type": "mrkdwn", "text": "Disk of *web-1* is full"}}
PLACE: dict[str, Any] = {"channel": "C1", "thread": None, "most": 10, "since": "2026-01-02T00:00:00.000Z"}


class History:
    """A channel that holds one message."""

    def __init__(self, message: dict[str, Any]) -> None:
        self.message = message

    async def conversations_history(self, **_: object) -> dict[str, Any]:
        """Its only page."""
        return {"messages": [{"ts": "1767225600.000100", **self.message}]}


async def told(**message: Any) -> str:
    """The line of a message."""

    async def name_of(user: str) -> str:
        return user

    client = cast(AsyncWebClient, History(message))
    [line] = await Said(client, "UBOT", name_of, read_by_people)(PLACE)
    return line.partition("UTC] ")[2]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"bot_id": "B1", "text": "", "blocks": [ALERT]}, "app B1: Disk of *web-1* is full"),
        ({"bot_id": "B1", "text": "Alert", "blocks": [ALERT]}, "app B1: Alert\n    Disk of *web-1* is full"),
        (
            {"bot_id": "B1", "text": "Disk of *web-1* is full", "blocks": [ALERT]},
            "app B1: Disk of *web-1* is full",
        ),
        ({"bot_id": "B1", "attachments": [{"fallback": "cpu at 97%"}]}, "app B1: cpu at 97%"),
        ({"user": "U1", "text": "", "attachments": [{"text": "passed on"}]}, "U1: passed on"),
        ({"user": "U1", "text": "look <http://x>", "attachments": [{"text": "a page"}]}, "U1: look http://x"),
        ({"user": "UBOT", "bot_id": "B0", "text": "Done", "blocks": [ALERT]}, "UBOT: Done"),
    ],
)
async def test_words_count_wherever_they_stand(message: dict[str, Any], words: str) -> None:
    """In text, blocks and attachments, each once; the preview of a person's link and the bot's own blocks add nothing."""
    assert await told(**message) == words
