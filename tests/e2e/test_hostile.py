"""Damaged records, hostile texts, and Slack that does not answer: never a wrong resume, nothing evaluated."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from bot.serve.identity import StartFailed
from bot.wire.client import AuthLost
from tests.e2e.test_slice import two_steps
from tests.support.acting import Workspace
from tests.support.bot import counted, running_bot, start_flow
from tests.support.hostile import markup
from tests.support.simulated import inhabited_town, simulated

CHANGE = {
    "snapshots": "UPDATE snapshots SET body = ?",
    "journal": "UPDATE journal SET body = ? WHERE n = ?",
}


def flip_snapshots(connection: apsw.Connection) -> None:
    """Change one byte in the only snapshot."""
    (body,) = connection.execute("SELECT body FROM snapshots").fetchone()
    connection.execute(CHANGE["snapshots"], (flipped(body),))


def flip_journal(connection: apsw.Connection) -> None:
    """Change one byte in the events of one session's first commit."""
    n, body = connection.execute("SELECT n, body FROM journal WHERE seq = 1").fetchone()
    connection.execute(CHANGE["journal"], (flipped(body), n))


def flipped(body: bytes) -> bytes:
    """The same bytes but for one bit."""
    return bytes(body[:20]) + bytes([body[20] ^ 1]) + bytes(body[21:])


@simulated
async def test_a_damaged_snapshot_is_rebuilt_from_the_journal(tmp_path: Path) -> None:
    """With a flipped byte in the snapshot row and garbage in the snapshot file the flow still continues rightly."""
    log, files = tmp_path / "log", tmp_path / "snapshots"
    async with inhabited_town(tmp_path, two_steps(log), snapshot_dir=files) as (workspace, bot):
        thread = await start_flow(workspace, "ana", "ops", "steps")
        await thread.says("What now?")
        await bot.close()
        flip_snapshots(bot.store.database.connect())
        assert list(files.glob("*.json"))
        for file in files.glob("*.json"):
            file.write_bytes(b"garbage")
        await bot.open()
        await thread.reply("ana", "on")
        await thread.says("All is done")
    assert counted(log) == ["before", "after:on"]


@simulated
async def test_a_damaged_journal_sets_the_session_aside_and_the_thread_is_told(tmp_path: Path) -> None:
    """After one changed byte in a journal row, the session never runs again, its thread is told, and other sessions continue."""
    log = tmp_path / "log"
    async with inhabited_town(tmp_path, two_steps(log)) as (workspace, bot):
        thread = await start_flow(workspace, "ana", "ops", "steps")
        await thread.says("What now?")
        other = await start_flow(workspace, "ana", "releases", "steps")
        await other.says("What now?")
        await bot.close()
        connection = bot.store.database.connect()
        flip_journal(connection)
        connection.execute("DELETE FROM snapshots")
        await bot.open()
        await thread.reply("ana", "on")
        await other.reply("ana", "on")
        await workspace.wait_for(lambda: thread.find("is on hold") or other.find("is on hold"), timeout=20)
        damaged, sound = (thread, other) if thread.find("is on hold") else (other, thread)
        await sound.says("All is done")
        assert damaged.find("All is done") is None
    assert counted(log) == ["before", "before", "after:on"]


HOSTILE = [
    "<!channel> <!here> <@U0LOCALBEN> @channel",
    "{{ 7*7 }} {% raw %} {{ secrets.TOKEN }} ${7*7}",
    "$(touch pwned) `touch pwned` ; touch pwned | touch pwned && touch pwned",
    "rtl \u202e gnp.exe \u2066 isolate",
    "<https://evil.example/?q=1|click> https://evil.example &amp; &lt;b&gt;",
    "*bold* ```fence``` > quote \u0007 bell",
]

ECHO = """
flow: echo
nodes:
  - {id: said, type: ask, with: {message: "Say it"}}
  - id: use
    type: shell
    with: {run: [printf, "%s", "{{ nodes.said.text }}"], cwd: "CWD"}
  - {id: tell, type: message, with: {text: "heard [{{ nodes.use.stdout }}]"}}
"""


@simulated
async def test_a_hostile_reply_is_data(tmp_path: Path) -> None:
    """Text from people is passed on unchanged: nothing is evaluated, executed, pinged or unfurled."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    async with inhabited_town(tmp_path, {"echo": ECHO.replace("CWD", str(folder))}) as (workspace, _):
        for text in HOSTILE:
            thread = await start_flow(workspace, "ana", "ops", "echo")
            await thread.says("Say it")
            await thread.reply("ana", text)
            await thread.says("heard [")
        await workspace.settled()
    assert list(folder.iterdir()) == []
    posts = [*workspace.calls_to("chat.postMessage"), *workspace.calls_to("chat.update")]
    for call in posts:
        shown = "\n".join(markup(call.args))
        assert "<!channel>" not in shown
        assert "<!here>" not in shown
        assert "heard [49" not in shown
        assert "\u202e" not in shown
        assert "<https://evil" not in shown
        if call.method == "chat.postMessage":
            assert str(call.args["unfurl_links"]).lower() in ("false", "0")
            assert str(call.args["unfurl_media"]).lower() in ("false", "0")


@simulated
async def test_a_reply_of_100_kb_is_refused_where_its_author_sees_it(tmp_path: Path) -> None:
    """A reply that is too long is refused in the thread, and the next one is taken."""
    log = tmp_path / "log"
    async with inhabited_town(tmp_path, two_steps(log)) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "steps")
        await thread.says("What now?")
        huge = "\ud800\x00\u202e{{ 7*7 }}" + "x" * 100_000
        workspace.admin.emit(
            {
                "type": "message",
                "channel": workspace.channel("ops").id,
                "channel_type": "channel",
                "user": workspace.user("ana").id,
                "team": workspace.team_id,
                "text": huge,
                "thread_ts": thread.root_ts,
                "ts": workspace.core.now_ts(),
            }
        )
        await thread.says("the limit is 16,384")
        await thread.reply("ana", "short")
        await thread.says("All is done")
    assert counted(log) == ["before", "after:short"]


@simulated
async def test_too_many_requests_are_waited_out(tmp_path: Path) -> None:
    """After 429 the bot waits as long as Slack says, and then posts once and in order."""
    log = tmp_path / "log"
    async with inhabited_town(tmp_path, two_steps(log)) as (workspace, _):
        workspace.faults.ratelimit("chat.postMessage", times=2, retry_after=1)
        thread = await start_flow(workspace, "ana", "ops", "steps")
        await thread.says("What now?")
        await thread.reply("ana", "patience")
        await thread.says("All is done")
    assert counted(log) == ["before", "after:patience"]


@pytest.mark.process
async def test_a_reply_during_a_reconnect_is_found(workspace: Workspace, tmp_path: Path) -> None:
    """Sockets are cut and connections refused for a while: a reply from then is found by the read after the reconnect, and
    the next one is heard."""
    log = tmp_path / "log"
    async with running_bot(workspace, tmp_path, two_steps(log)):
        thread = await start_flow(workspace, "ana", "ops", "steps")
        await thread.says("What now?")
        await workspace.settled()
        workspace.faults.go_away("refuse")
        await workspace.wait_for(lambda: not workspace.core.sockets.connections)
        await thread.reply("ana", "between")
        calls = len(workspace.calls)
        await workspace.wait_for(lambda: len(workspace.calls) > calls + 1, timeout=40)
        workspace.faults.come_back()
        await thread.says("All is done", timeout=60)
        assert "dropped" in [delivery.state for delivery in workspace.deliveries]
        again = await start_flow(workspace, "ana", "ops", "steps")
        await again.says("What now?")
    assert counted(log) == ["before", "after:between", "before"]


@simulated
async def test_a_missing_scope_is_named_and_only_the_vital_ones_are_fatal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without usergroups:read the bot says what will not work and runs; without chat:write it does not start."""
    full = ["app_mentions:read", "channels:history", "groups:history", "im:history", "chat:write", "commands"]
    reading = ["channels:read", "groups:read", "users:read", "users:read.email"]
    async with inhabited_town(tmp_path, two_steps(tmp_path / "log")) as (workspace, bot):
        assert "usergroups:read" not in caplog.text
        await bot.close()
        workspace.faults.set_scopes([*full, *reading])
        await bot.open()
        assert "usergroups:read" in caplog.text
        thread = await start_flow(workspace, "ana", "ops", "steps")
        await thread.says("What now?")
        await bot.close()
        workspace.faults.set_scopes([scope for scope in [*full, *reading] if scope != "chat:write"])
        with pytest.raises(StartFailed, match="chat:write"):
            await bot.open()


@simulated
async def test_a_server_that_does_not_name_scopes_is_no_error(tmp_path: Path) -> None:
    """When answers have no scopes header the bot starts and works."""
    async with inhabited_town(tmp_path, two_steps(tmp_path / "log")) as (workspace, bot):
        await bot.close()
        workspace.faults.set_scopes(None, announce=False)
        await bot.open()
        thread = await start_flow(workspace, "ana", "ops", "steps")
        await thread.says("What now?")


@simulated
async def test_a_revoked_token_ends_the_bot(tmp_path: Path) -> None:
    """When Slack refuses the token from now on the bot ends, though no event says so; nothing is lost."""
    log = tmp_path / "log"
    async with inhabited_town(tmp_path, two_steps(log)) as (workspace, bot):
        thread = await start_flow(workspace, "ana", "ops", "steps")
        await thread.says("What now?")
        workspace.faults.reject_token("token_revoked")
        await thread.reply("ana", "kept")
        with pytest.raises(AuthLost):
            await bot.ended()
        workspace.faults.accept_token()
        await bot.open()
        await thread.says("All is done")
    assert counted(log) == ["before", "after:kept"]


@simulated
async def test_a_damaged_session_whose_question_was_never_confirmed_is_set_aside_too(tmp_path: Path) -> None:
    """Damage is noticed also where only the outbox looks at the session: its answer to the post had been lost."""
    async with inhabited_town(tmp_path, two_steps(tmp_path / "log")) as (workspace, bot):
        workspace.faults.effect_then_fail("chat.postMessage", times=1)
        workspace.faults.fail("conversations.replies", times=1_000)
        thread = await start_flow(workspace, "ana", "ops", "steps")
        await workspace.wait_for(lambda: len(thread.messages()) >= 2)
        await bot.close()
        workspace.faults.clear()
        connection = bot.store.database.connect()
        flip_journal(connection)
        connection.execute("DELETE FROM snapshots")
        await bot.open()
        await thread.says("is on hold")
        await thread.reply("ana", "status")
        await thread.reply("ana", "on")
        await workspace.settled()
    assert thread.find("All is done") is None
