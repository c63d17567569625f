"""A bot that is started again without a package that sessions need, and once more with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodes.gonekit import Package
from tests.support.bot import start_flow
from tests.support.simulated import inhabited_town, simulated

CALL = """
flow: call
nodes:
  - {id: q, type: ask, with: {message: "Whom?"}}
  - {id: call, type: page, with: {who: "{{ nodes.q.text }}"}}
  - {id: told, type: message, with: {text: "{{ nodes.call.said }}"}}
"""
OTHER = """
flow: other
nodes:
  - {id: q, type: ask, with: {message: "And here?"}}
  - {id: told, type: message, with: {text: "Heard {{ nodes.q.text }}"}}
"""
MISSING = "the node type `page` of the package pager is not installed here"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """The package, installed."""
    made = Package(tmp_path, monkeypatch)
    made.install()
    yield made
    made.remove()


@simulated
async def test_a_thread_whose_node_type_is_gone_is_answered_ended_and_goes_on(
    tmp_path: Path, package: Package, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the package other threads run, answers count, the thread says what is missing, and `stop` and `cancel` work;
    with it what waited goes on by itself."""
    flows = {"call": CALL, "other": OTHER}
    async with inhabited_town(tmp_path, flows) as (workspace, bot):
        waits = await start_flow(workspace, "ana", "releases", "call")
        ended = await start_flow(workspace, "ana", "releases", "call")
        other = await start_flow(workspace, "ana", "releases", "other")
        for thread, words in ((waits, "Whom?"), (ended, "Whom?"), (other, "And here?")):
            await thread.says(words)
        await bot.close()
        package.remove()
        await bot.open()
        await workspace.wait_for(lambda: f"{MISSING}: 2 open sessions" in caplog.text)
        await other.reply("ana", "fine")
        await other.says("Heard fine")
        await waits.reply("ana", "ben")
        asked = await waits.says(MISSING)
        await ended.reply("ana", "stop")
        await ended.says("is paused by Ana Ruiz")
        await ended.reply("ana", "cancel")
        await ended.press("ana", await ended.says("Cancel *call*?"), "Cancel it")
        await ended.says("cancelled it")
        await ended.says("🚫")
        await waits.press("ana", asked, "Try again")
        await workspace.wait_for(lambda: waits.count(MISSING) >= 2)
        assert package.ran() == []
        await bot.close()
        package.install()
        await bot.open()
        await waits.says("paged ben")
    assert package.ran() == ["call ben"]
