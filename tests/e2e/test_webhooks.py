"""Webhooks start flows: signed, stored before they are answered, each body once."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest

from bot.serve import hooks
from tests.support.acting import Workspace
from tests.support.bot import BotProcess, counted, running_bot

SECRET = "canary-of-the-hook"


def flow(log: Path) -> dict[str, str]:
    """A flow that GitHub starts, and whoever has the secret; a file counts its runs."""
    shared = 'secret: HOOK, channel: "#ops", body_as: event'
    return {
        "deploy": f"""
flow: deploy
inputs: {{event: {{type: object}}}}
triggers:
  - {{webhook: pushed, events: [push], {shared}}}
  - {{webhook: alerts, verify: bearer, {shared}}}
nodes:
  - id: count
    type: shell
    with: {{script: 'echo "$WHAT" >> "$LOG"', env: {{LOG: "{log}", WHAT: "{{{{ inputs.event.what }}}}"}}}}
"""
    }


async def sent(base: str, name: str, body: bytes, headers: Mapping[str, str]) -> int:
    """The status of the answer to a POST."""
    url = f"{base}/hooks/{name}"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body, headers=headers) as answer,
    ):
        told = await answer.json()
        assert SECRET not in told["message"]
        return answer.status


def signed(body: bytes, event: str = "push", secret: str = SECRET) -> dict[str, str]:
    """The headers that GitHub sends."""
    digest = hmac.new(secret.encode(), body, sha256).hexdigest()
    return {"X-GitHub-Event": event, "X-GitHub-Delivery": "1", "X-Hub-Signature-256": f"sha256={digest}"}


async def base_of(bot: BotProcess) -> str:
    """Where it listens."""
    return (await bot.said("metrics:")).split()[1].removesuffix("/metrics")


@pytest.mark.process
async def test_a_signed_body_starts_its_flow_once(workspace: Workspace, tmp_path: Path) -> None:
    """Also where it is delivered again under another id, and after a kill right behind the answer."""
    log, one = tmp_path / "log", json.dumps({"what": "one"}).encode()
    settings = {"SAYSO_METRICS": "0", "SAYSO_SECRET_HOOK": SECRET}
    async with running_bot(workspace, tmp_path, flow(log), **settings) as bot:
        assert await sent(await base_of(bot), "pushed", one, signed(one)) == 202
        await bot.kill()
        await bot.start()
        base = await base_of(bot)
        assert await sent(base, "pushed", one, {**signed(one), "X-GitHub-Delivery": "2"}) == 202
        two = json.dumps({"what": "two"}).encode()
        bearer = {"Authorization": f"Bearer {SECRET}", "Idempotency-Key": "k"}
        for _ in range(2):
            assert await sent(base, "alerts", two, bearer) == 202
        await workspace.wait_for(lambda: len(counted(log)) >= 2)
        ping = b'{"what": "ping"}'
        assert await sent(base, "pushed", ping, signed(ping, "ping")) == 202
        last = b'{"what": "last"}'
        assert await sent(base, "alerts", last, {**bearer, "Idempotency-Key": "l"}) == 202
        await workspace.wait_for(lambda: "last" in counted(log))
    assert sorted(counted(log)) == ["last", "one", "two"]


@pytest.mark.process
async def test_what_is_not_signed_or_not_readable_starts_nothing(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Each refusal has its status; nothing is stored, and the secret is told nowhere."""
    log, body = tmp_path / "log", b'{"what": "x"}'
    settings = {"SAYSO_METRICS": "0", "SAYSO_SECRET_HOOK": SECRET}
    async with running_bot(workspace, tmp_path, flow(log), **settings) as bot:
        base = await base_of(bot)
        refused = {
            404: ("nothing", body, signed(body)),
            401: ("pushed", body, signed(body, secret="guess")),
            400: ("pushed", b"{", signed(b"{")),
        }
        for status, (name, data, headers) in refused.items():
            assert await sent(base, name, data, headers) == status
        assert await sent(base, "pushed", b'{"what": "y"}', signed(body)) == 401, "signed for another body"
        assert await sent(base, "pushed", body, {}) == 401
        assert await sent(base, "pushed", b"[1]", signed(b"[1]")) == 400
        large = b'"' + b"x" * hooks.MOST_BYTES + b'"'
        url = f"{base}/hooks/pushed"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=large, headers=signed(large)) as answer,
        ):
            assert answer.status == 413
        assert SECRET not in "\n".join(bot.lines)
    assert counted(log) == []
