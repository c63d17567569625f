"""Who may ask at all, what is served, and the response URLs."""

from __future__ import annotations

import aiohttp
from yarl import URL

from tests.support.acting import Workspace
from tests.support.workspace import Json, RunningApp, actions, button

OPS = "C0LOCALOPS"


async def test_other_origins_and_hosts_are_refused(workspace: Workspace) -> None:
    """A page of the web that a person visits cannot act here, not even with a rebound name."""
    async with aiohttp.ClientSession() as session:
        for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            for path in ("/page/state?as=U0LOCALANA", "/api/auth.test", "/", "/page/ws?as=U0LOCALANA"):
                async with session.get(workspace.url + path, headers=headers) as answer:
                    assert answer.status == 403, (headers, path)


async def test_it_listens_on_loopback_only(workspace: Workspace) -> None:
    """The listening socket is bound to 127.0.0.1."""
    runner = workspace._runner
    assert runner is not None
    assert [address[0] for address in runner.addresses] == ["127.0.0.1"]


async def test_nothing_outside_the_page_is_served(workspace: Workspace) -> None:
    """Paths that lead out of the page's folder are not found."""
    async with aiohttp.ClientSession() as session:
        for path in ("/../server.py", "/%2e%2e/server.py", "/page/../../server.py", "/nothing.html"):
            async with session.get(URL(workspace.url + path, encoded=True)) as answer:
                assert answer.status == 404, path
                assert "class Workspace" not in await answer.text(), path


async def _response_url(workspace: Workspace, bolt: RunningApp) -> tuple[str, str]:
    """The response URL of a press, and the pressed message's ts."""
    posted = await bolt.client.chat_postMessage(channel=OPS, text="?", blocks=[actions(button("Go", "go"))])
    await workspace.press("ana", "ops", posted["ts"], text="Go")
    return str(bolt.of("block_actions")[-1]["response_url"]), str(posted["ts"])


async def _answer(url: str, body: Json) -> int:
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
        return answer.status


async def test_a_response_url_answers_in_four_ways(workspace: Workspace, bolt: RunningApp) -> None:
    """Ephemeral by default, in the channel on demand, instead of the message, or deleting it."""
    url, ts = await _response_url(workspace, bolt)
    assert await _answer(url, {"text": "only you"}) == 200
    assert [m["text"] for m in workspace.ephemerals("ana")] == ["only you"]
    assert await _answer(url, {"text": "all", "response_type": "in_channel"}) == 200
    assert workspace.messages("ops")[-1]["text"] == "all"
    assert await _answer(url, {"text": "changed", "replace_original": True}) == 200
    assert workspace.messages("ops")[0]["text"] == "changed"
    assert "blocks" not in workspace.messages("ops")[0]
    assert await _answer(url, {"delete_original": True}) == 200
    assert ts not in [m["ts"] for m in workspace.messages("ops")]


async def test_a_response_url_ends(workspace: Workspace, bolt: RunningApp) -> None:
    """Five answers, then no more; an unknown one never works; nothing to say is refused."""
    url, _ = await _response_url(workspace, bolt)
    assert await _answer(url, {}) == 400
    for _ in range(4):
        assert await _answer(url, {"text": "x"}) == 200
    assert await _answer(url, {"text": "x"}) == 404
    assert await _answer(url + "0", {"text": "x"}) == 404
