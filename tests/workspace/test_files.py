"""Files in the local workspace: who gets them, where they are shared, and the shapes that Slack refuses."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from bot.workspace import SlackError
from bot.workspace.blocks import check_message
from tests.support.acting import Workspace
from tests.support.workspace import client_of


async def uploaded(workspace: Workspace, content: bytes = b"hello", **options: Any) -> str:
    """An upload that is not shared yet; its id."""
    client = client_of(workspace)
    answer = await client.files_getUploadURLExternal(filename="a.txt", length=len(content), **options)
    async with aiohttp.ClientSession() as session, session.post(answer["upload_url"], data=content) as sent:
        assert sent.status == 200
    return str(answer["file_id"])


async def test_a_file_says_where_it_was_shared(workspace: Workspace) -> None:
    """`files.info` has the message of each sharing, and none before it."""
    client = client_of(workspace)
    root = await workspace.post("ana", "ops", "hello")
    file_id = await uploaded(workspace, alt_txt="A greeting")
    before = (await client.files_info(file=file_id))["file"]
    assert (before.get("shares"), before["alt_txt"]) == (None, "A greeting")
    place = workspace.channel("ops").id
    await client.files_completeUploadExternal(files=[{"id": file_id}], channel_id=place, thread_ts=root)
    shared = (await client.files_info(file=file_id))["file"]["shares"]["public"][place]
    _, message = workspace.messages("ops", root)
    assert [(one["ts"], one["thread_ts"]) for one in shared] == [(message["ts"], root)]


async def test_a_file_needs_the_token_of_the_app(workspace: Workspace) -> None:
    """Without it, or with another one, nothing is given."""
    await workspace.post("ana", "ops", "see", files={"a.txt": b"hello"})
    (file,) = workspace.messages("ops")[0]["files"]
    async with aiohttp.ClientSession() as session:
        for name in ("url_private", "url_private_download"):
            for headers in ({}, {"Authorization": "Bearer xoxb-other"}):
                async with session.get(file[name], headers=headers) as answer:
                    assert answer.status == 403
            async with session.get(
                file[name], headers={"Authorization": f"Bearer {workspace.bot_token}"}
            ) as answer:
                assert (answer.status, await answer.read()) == (200, b"hello")
                assert answer.headers["Content-Disposition"] == "attachment"


@pytest.mark.parametrize(
    ("rows", "taken"),
    [(100, True), (101, False)],
)
def test_a_table_has_at_most_a_hundred_rows(rows: int, taken: bool) -> None:
    """One more is refused with Slack's error."""
    blocks = [{"type": "table", "rows": [[{"type": "raw_text", "text": "x"}]] * rows}]
    assert refused(blocks) == ("" if taken else "invalid_blocks")


def test_a_table_keeps_its_other_limits() -> None:
    """Twenty columns, one table in a message, no empty cell, and so many characters in all cells."""
    cell = {"type": "raw_text", "text": "x"}
    assert refused([{"type": "table", "rows": [[cell] * 20]}]) == ""
    assert refused([{"type": "table", "rows": [[cell] * 21]}]) == "invalid_blocks"
    assert refused([{"type": "table", "rows": [[cell]]}] * 2) == "invalid_blocks"
    assert refused([{"type": "table", "rows": [[{"type": "raw_text", "text": ""}]]}]) == "invalid_blocks"
    long = {"type": "raw_text", "text": "x" * 5_001}
    assert refused([{"type": "table", "rows": [[long, long]]}]) == "invalid_blocks"
    assert refused([{"type": "table", "rows": [[{"type": "button"}]]}]) == "invalid_blocks"


def refused(blocks: list[dict[str, Any]]) -> str:
    """Slack's error for a message with these blocks; empty when it is taken."""
    try:
        check_message("text", blocks)
    except SlackError as error:
        return str(error.error)
    return ""
