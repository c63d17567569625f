"""A bot that is started again without a package that sessions need, and once more with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
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
async def test_a_thread_whose_node_type_is_gone_is_told_and_goes_on_after_its_release(
    tmp_path: Path, package: Package, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the package other threads run, and this one is told what is missing and how it continues; with the package and
    after the release it does."""
    flows = {"call": CALL, "other": OTHER}
    async with inhabited_town(tmp_path, flows) as (workspace, bot):
        waits = await start_flow(workspace, "ana", "releases", "call")
        other = await start_flow(workspace, "ana", "releases", "other")
        for thread, words in ((waits, "Whom?"), (other, "And here?")):
            await thread.says(words)
        await bot.settle()
        await bot.close()
        package.remove()
        await bot.open()
        await waits.says(MISSING)
        await waits.says("sayso sessions release session-")
        await workspace.wait_for(lambda: f"{MISSING}: 1 open sessions" in caplog.text)
        await other.reply("ana", "fine")
        await other.says("Heard fine")
        assert package.ran() == []
        await bot.close()
        package.install()
        with closing(bot.store.another()) as store:
            (head,) = (head for head in store.sessions.heads(limit=None) if head.quarantined)
            store.sessions.release(head.session_id)
        await bot.open()
        await waits.reply("ana", "ben")
        await waits.says("paged ben")
    assert package.ran() == ["call ben"]
