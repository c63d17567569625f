"""Channels that close, messages that are deleted, and a token that is revoked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.cli.sessions import list_sessions
from bot.terminal.console import Place
from engine.storage import open as storage
from tests.support.acting import Acts, Workspace
from tests.support.bot import counted, running_bot, start_flow
from tests.support.simulated import TownWorkspace, in_town, inhabited_town, simulated

GATE = """
flow: gate
nodes:
  - {{id: ask, type: ask, with: {{message: "Shall I?", remind_every: 1h, timeout: 1d}}}}
  - {{id: note, type: shell, with: {{run: [sh, -c, 'echo done >> {file}']}}}}
"""


def direct(workspace: Acts, name: str, part: str) -> list[dict[str, Any]]:
    """What the bot told somebody in a direct message."""
    user = workspace.user(name).id
    channels = [c.id for c in workspace.state.channels.values() if c.is_im and user in c.members]
    return [m for channel in channels for m in workspace.messages(channel) if part in m["text"]]


@simulated
async def test_a_session_waits_for_its_channel_and_goes_on_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If a channel is archived and restored, the requester is told, and nothing is lost or done twice."""
    file = tmp_path / "effects"
    async with inhabited_town(tmp_path, {"gate": GATE.format(file=file)}) as (workspace, bot):
        channel = workspace.channel("releases")
        thread = await start_flow(workspace, "ana", "releases", "gate", says="Shall I?")
        workspace.admin.archive(channel)
        await workspace.wait_for(lambda: direct(workspace, "ana", "the channel was archived"))
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(storage, "open_store", lambda *given, **more: bot.store.another())
            list_sessions(Place(database="memory:"), (), show_all=False, limit=9, as_json=False)
        assert "its thread, where the bot cannot post" in capsys.readouterr().out
        workspace.admin.archive(channel, archived=False)
        await thread.says("🟡 *Waiting*")
        await thread.reply("ana", "yes")
        await thread.says("*Completed*")
        assert len(direct(workspace, "ana", "the channel was archived")) == 1
    assert counted(file) == ["done"]


@simulated
async def test_a_bot_that_was_removed_goes_on_when_it_is_invited_again(tmp_path: Path) -> None:
    """An invitation is enough for the run to continue."""
    file = tmp_path / "effects"
    async with inhabited_town(tmp_path, {"gate": GATE.format(file=file)}) as (workspace, _):
        thread = await start_flow(workspace, "ana", "releases", "gate", says="Shall I?")
        workspace.leave("sayso", "releases")
        await workspace.wait_for(lambda: direct(workspace, "ana", "I was removed from the channel"))
        workspace.join("sayso", "releases")
        await thread.says("🟡 *Waiting*")
        await thread.reply("ana", "yes")
        await thread.says("*Completed*")
    assert counted(file) == ["done"]


@in_town(lambda folder: {"gate": GATE.format(file=folder / "effects")})
async def test_a_deleted_question_comes_again_and_after_three_copies_the_requester_is_told(
    workspace: TownWorkspace, tmp_path: Path
) -> None:
    """Each copy can be answered; a fourth one is not posted, and the question is still open."""
    file = tmp_path / "effects"
    thread = await start_flow(workspace, "ana", "releases", "gate")
    seen: set[str] = set()

    def current() -> dict[str, Any] | None:
        found = [m for m in thread.messages() if "Shall I?" in str(m) and m.get("bot_id")]
        return next((m for m in found if m["ts"] not in seen), None)

    for _ in range(4):
        await workspace.wait_for(lambda: current() is not None)
        message = current()
        assert message is not None
        seen.add(message["ts"])
        await workspace.delete("sayso", "releases", message["ts"])
    await workspace.wait_for(lambda: direct(workspace, "ana", "was deleted 4 times"))
    assert current() is None
    await thread.reply("ana", "yes")
    await workspace.wait_for(lambda: counted(file) == ["done"])


@pytest.mark.process
async def test_a_revoked_token_ends_the_bot_and_another_one_goes_on(
    workspace: Workspace, tmp_path: Path
) -> None:
    """The bot says what to do and exits with an error; waiting runs continue after a start with a valid token."""
    file = tmp_path / "effects"
    async with running_bot(workspace, tmp_path, {"gate": GATE.format(file=file)}) as bot:
        thread = await start_flow(workspace, "ana", "releases", "gate", says="Shall I?")
        workspace.admin.revoke_tokens()
        await thread.reply("ana", "yes")
        assert await bot.ended() not in (0, None)
        assert any("reinstall the app" in line for line in bot.lines)
        workspace.faults.reject_token("")
        await bot.start()
        await thread.says("*Completed*")
    assert counted(file) == ["done"]
