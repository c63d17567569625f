"""What `message` nodes post, where, and once: markdown, tables, files, other channels, people, updates."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from bot.intents.session_rows import file_row
from engine.journal.state import State
from tests.bot.outbound_kit import Rig, key_of
from tests.support.workspace import Json


def message(config: str, *, before: str = "", inputs: str = "{}") -> str:
    """A flow that posts one message."""
    return f"""
flow: tell
inputs: {inputs}
nodes:
{before}  - id: tell
    type: message
    with: {config}
"""


async def ended(rig: Rig, session_id: str) -> State:
    """Wait for the session's end; its state."""
    return await rig.comes(session_id, lambda state: state.ended)


async def told(rig: Rig, config: str, **inputs: Any) -> tuple[State, list[Json]]:
    """Run a flow of one message to its end: its state, and the bot's messages in the thread but for the card."""
    kinds = {name: "array" if isinstance(value, list) else "string" for name, value in inputs.items()}
    names = ", ".join(f"{name}: {{type: {kind}}}" for name, kind in kinds.items())
    session_id = await rig.start(message(config, inputs=f"{{{names}}}"), **inputs)
    if rig.outbound is None:
        rig.send()
    state = await ended(rig, session_id)
    thread = [one for one in await rig.thread(session_id) if not str(key_of(one)).startswith("card:")]
    return state, [one for one in thread if not str(key_of(one)).startswith("end:")]


def blocks(message: Json, kind: str) -> list[Json]:
    """The blocks of one type."""
    return [block for block in message.get("blocks") or [] if block["type"] == kind]


def content(rig: Rig, file: Json) -> str:
    """What is in a file that was uploaded."""
    return base64.b64decode(rig.workspace.state.files[file["id"]]["_content"]).decode()


# --- what is said ------------------------------------------------------------------------------------------


async def test_markdown_is_a_block_of_its_own(rig: Rig) -> None:
    """Headings and tables of Markdown reach Slack as they are written."""
    _, (shown,) = await told(rig, '{markdown: "# Plan\\n\\n- one\\n- two"}')
    assert [block["text"] for block in blocks(shown, "markdown")] == ["# Plan\n\n- one\n- two"]


TABLE = '{table: {columns: [host, load], rows: [["a1", 0.5], {load: 2, host: "b2"}, ["c3"]]}}'


async def test_a_table_has_a_row_for_its_names_and_plain_cells(rig: Rig) -> None:
    """Rows may be lists or mappings, numbers are sorted as such, and the caption says how many rows there are."""
    _, (shown,) = await told(rig, TABLE)
    (table,) = blocks(shown, "data_table")
    rows = [[cell["text"] for cell in row] for row in table["rows"]]
    assert rows == [["host", "load"], ["a1", "0.5"], ["b2", "2"], ["c3", " "]]
    assert [cell.get("value") for row in table["rows"] for cell in row[1:]] == [None, 0.5, 2, None]
    assert table["caption"] == "3 rows"


async def test_a_table_has_a_title(rig: Rig) -> None:
    """It is the caption, and is in the words for notifications."""
    _, (shown,) = await told(rig, TABLE.replace("table: {", 'table: {title: "Load by host", '))
    (table,) = blocks(shown, "data_table")
    assert table["caption"] == "Load by host"
    assert "*Load by host*" in shown["text"]


async def test_fields_stand_side_by_side(rig: Rig) -> None:
    """Each has its title in bold and its value below."""
    _, (shown,) = await told(rig, '{fields: [{title: Host, value: "<#C1>"}, {title: Load, value: 3}]}')
    (section,) = blocks(shown, "section")
    assert [one["text"] for one in section["fields"]] == ["*Host*\n<#C1>", "*Load*\n3"]


async def test_a_picture_has_its_words(rig: Rig) -> None:
    """The address may take a value behind its host, and what it shows is said."""
    config = '{images: [{url: "https://charts.example.com/x?q={{ inputs.q }}", alt: "Load"}]}'
    _, (shown,) = await told(rig, config, q="a b<c>")
    (image,) = blocks(shown, "image")
    assert image["image_url"] == "https://charts.example.com/x?q=a%20b%3Cc%3E"
    assert image["alt_text"] == "Load"


async def test_the_output_says_where_the_message_stands(rig: Rig) -> None:
    """Later nodes know its channel, its ts and its address."""
    state, (shown,) = await told(rig, '{text: "hello"}')
    output = state.nodes["tell"].output
    assert output["channel"] == "C0LOCALOPS"
    assert output["ts"] == shown["ts"]
    assert output["permalink"].startswith(rig.workspace.url)


# --- where it goes -----------------------------------------------------------------------------------------


async def test_a_message_goes_to_a_channel_by_its_name(rig: Rig) -> None:
    """It begins a thread of its own there, and nothing of it is in the session's thread."""
    state, thread = await told(rig, '{text: "deployed", to: "#releases"}')
    assert thread == []
    (shown,) = rig.posts("deployed")
    assert state.nodes["tell"].output["channel"] == rig.workspace.channel("releases").id
    assert "thread_ts" not in shown


async def test_a_message_goes_to_one_person(rig: Rig) -> None:
    """`dm:` opens the direct message with somebody by e-mail address."""
    state, _ = await told(rig, '{text: "for you", to: "dm:ben@example.com"}')
    place = rig.workspace.dm("ben").id
    assert state.nodes["tell"].output["channel"] == place
    assert [one["text"] for one in rig.workspace.messages(place)] == ["for you"]


async def test_a_channel_that_the_bot_is_not_in_fails_the_node(rig: Rig) -> None:
    """The error says what to do."""
    rig.workspace.add_channel("secret", ["ana"])
    state, _ = await told(rig, '{text: "x", to: "#secret"}')
    assert state.outcome == "failed"
    assert "invite it there" in str(state.error)


async def test_a_message_may_stand_in_the_channel_itself(rig: Rig) -> None:
    """With `thread: false` it is not a reply."""
    await told(rig, '{text: "for all", thread: false}')
    assert "for all" in [one["text"] for one in rig.workspace.messages("ops")]


async def test_a_broadcast_is_seen_in_the_channel_too(rig: Rig) -> None:
    """It is a reply, shown in both places."""
    _, (shown,) = await told(rig, '{text: "news", broadcast: true}')
    assert shown["subtype"] == "thread_broadcast"


async def test_an_ephemeral_is_seen_by_one_person_and_once(rig: Rig) -> None:
    """After a lost answer it is not sent again, and the flow continues."""
    rig.workspace.faults.effect_then_fail("chat.postEphemeral", times=1)
    state, thread = await told(rig, '{text: "only you", ephemeral_to: requester}')
    assert state.outcome == "complete"
    assert thread == []
    assert [one["text"] for one in rig.workspace.ephemerals("ana")] == ["only you"]
    assert state.nodes["tell"].output["ts"] is None


UPDATE = """
flow: twice
nodes:
  - id: first
    type: message
    with: {text: "working"}
  - id: each
    type: foreach
    with: {items: [1, 2], as: number}
    body:
      - id: change
        type: message
        with: {update: first, text: "done {{ number }}"}
"""


async def test_an_update_changes_the_earlier_message(rig: Rig) -> None:
    """Nothing new is posted, in a loop neither, and the output is that of the message which was changed."""
    session_id = await rig.start(UPDATE)
    rig.send()
    state = await ended(rig, session_id)
    assert rig.posts("working") == []
    (shown,) = rig.posts("done 2")
    rounds = state.nodes["each"].output["iterations"]
    assert rounds[1]["outputs"]["change"]["ts"] == shown["ts"]
    assert key_of(shown) == f"message:{session_id}:first:1"


# --- files -------------------------------------------------------------------------------------------------


async def test_files_come_with_the_message(rig: Rig) -> None:
    """Content that the flow gives, and a file of the session's folder, in the thread below the text."""
    session_id = await rig.start(
        message('{text: "see", files: [{content: "a,b", name: a.csv}, {path: out/b.txt, title: B}]}')
    )
    folder = rig.home / "sessions" / session_id / "out"
    folder.mkdir(parents=True)
    (folder / "b.txt").write_text("bee")
    rig.send()
    await ended(rig, session_id)
    thread = [one for one in await rig.thread(session_id) if "files" in one]
    (shared,) = thread
    assert [(one["name"], one["title"], content(rig, one)) for one in shared["files"]] == [
        ("a.csv", "a.csv", "a,b"),
        ("b.txt", "B", "bee"),
    ]


@pytest.mark.parametrize("path", ["../../secret", "/etc/passwd", "link", "folder/link", "pipe", ""])
async def test_no_file_outside_of_the_folder_is_read(rig: Rig, tmp_path: Path, path: str) -> None:
    """Neither by its path nor through a link that a program left there: the node fails and nothing is uploaded."""
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    session_id = await rig.start(message(f"{{files: [{{path: \"{{{{ '{path}' }}}}\"}}]}}"))
    folder = rig.home / "sessions" / session_id
    folder.mkdir(parents=True)
    (folder / "link").symlink_to(secret)
    (folder / "folder").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    rig.send()
    state = await ended(rig, session_id)
    assert state.outcome == "failed"
    assert rig.calls("files.getUploadURLExternal") == 0


@pytest.mark.parametrize(
    "method", ["files.getUploadURLExternal", "files.completeUploadExternal", "chat.postMessage"]
)
@pytest.mark.parametrize("fault", ["effect_then_fail", "fail", "ratelimit"])
async def test_a_file_is_there_once_whatever_is_lost(rig: Rig, method: str, fault: str) -> None:
    """An answer that is lost, a call that did nothing, a limit: one text and one file in the end."""
    options: dict[str, Any] = {"retry_after": 0} if fault == "ratelimit" else {}
    session_id = await rig.start(message('{text: "see", files: [{content: "x", name: a.txt}]}'))
    rig.send()
    await rig.settled(f"card:{session_id}")
    getattr(rig.workspace.faults, fault)(method, times=1, **options)
    state = await ended(rig, session_id)
    assert state.outcome == "complete"
    thread = await rig.thread(session_id)
    assert [one["files"][0]["name"] for one in thread if "files" in one] == ["a.txt"]
    assert len([one for one in thread if one["text"] == "see"]) == 1


async def test_a_crash_between_text_and_file_posts_nothing_twice(rig: Rig) -> None:
    """The text is recorded before its file is uploaded; the next process uploads the file and no more."""
    session_id = await rig.start(message('{text: "see", files: [{content: "x", name: a.txt}]}'))
    rig.workspace.faults.slow("files.completeUploadExternal", 60)
    rig.send()
    await rig.workspace.wait_for(lambda: rig.calls("files.completeUploadExternal"))
    await rig.crash()
    rig.workspace.faults.clear()
    rig.send()
    await ended(rig, session_id)
    thread = await rig.thread(session_id)
    assert len([one for one in thread if "files" in one]) == 1
    assert len([one for one in thread if one["text"] == "see"]) == 1


async def test_a_text_row_becomes_a_file(rig: Rig) -> None:
    """What is too long for a message is uploaded by a row of its own, once."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    rig.workspace.faults.effect_then_fail("files.completeUploadExternal", times=1)
    rig.send()
    await rig.put(file_row("file:1", "lane", "C0LOCALOPS", ts, "log.txt", "all of it", text="the rest"))
    assert (await rig.settled("file:1"))["state"] == "sent"
    _, shared = rig.workspace.messages("ops", ts)
    assert (shared["text"], content(rig, shared["files"][0])) == ("the rest", "all of it")


# --- what does not fit -------------------------------------------------------------------------------------

LONG = "".join(f"line {number} of the whole text\n" for number in range(2_000))


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ('{text: "{{ inputs.long }}"}', "message.txt"),
        ('{markdown: "{{ inputs.long }}"}', "message.md"),
        ('{fields: [{title: Log, value: "{{ inputs.long }}"}]}', "fields.txt"),
        ('{table: {columns: [line], rows: "{{ inputs.rows }}"}}', "table.csv"),
    ],
)
async def test_what_does_not_fit_is_a_file_and_the_message_says_so(rig: Rig, config: str, name: str) -> None:
    """The beginning is shown, all of it is in the file, and Slack's limits are kept."""
    state, thread = await told(rig, config, long=LONG, rows=[[line] for line in LONG.splitlines()])
    assert state.outcome == "complete"
    shown, shared = thread
    (notice,) = blocks(shown, "context")
    assert f"`{name}`" in notice["elements"][0]["text"]
    whole = content(rig, shared["files"][0])
    assert all(f"line {number} of the whole text" in whole for number in (0, 999, 1_999))
