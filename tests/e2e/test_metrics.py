"""Metrics and health of the running bot, over HTTP."""

from __future__ import annotations

import socket
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.storage.open import open_store
from tests.support.acting import Workspace
from tests.support.bot import BotProcess, running_bot, start_flow

FLOW = """
flow: gate
nodes:
  - {id: first, type: noop}
  - {id: ok, type: approval, with: {message: "Go?", approvers: [channel]}}
"""


async def got(url: str) -> tuple[int, str]:
    """What a GET answers."""
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


def samples(text: str) -> dict[tuple[str, ...], float]:
    """The samples by name and the values of their labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.process
async def test_people_are_counted_as_an_objective(workspace: Workspace, tmp_path: Path) -> None:
    """Who waits, and for how long it took once somebody decided; ready while it is connected; names of flows only."""
    async with running_bot(workspace, tmp_path, {"gate": FLOW}, SAYSO_METRICS="0") as bot:
        base = (await bot.said("metrics:")).split()[1].removesuffix("/metrics")
        assert await got(f"{base}/healthz") == (200, "ok\n")
        assert (await got(f"{base}/readyz"))[0] == 200
        thread = await start_flow(workspace, "ana", "ops", "gate")
        question = await thread.says("Go?")
        found = samples((await got(f"{base}/metrics"))[1])
        assert found["sayso_prompts_open", "gate"] == 1
        assert found["sayso_sessions_open", "paused"] == 1
        assert found["sayso_slack_sockets",] == 2
        await thread.approve("ben", question)
        await thread.says("Completed")
        text = (await got(f"{base}/metrics"))[1]
    after = samples(text)
    assert after["sayso_prompt_wait_seconds_count", "gate", "channel", "approve"] == 1
    assert after["sayso_sessions_ended_total", "gate", "complete"] == 1
    assert after["sayso_steps_total", "gate", "completed"] == 2
    assert ("sayso_prompts_open", "gate") not in after
    assert "ana" not in text


@pytest.mark.process
async def test_a_session_that_was_set_aside_hides_no_older_question(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Nobody can answer its question any more; the alert is about the oldest of the others."""
    async with running_bot(workspace, tmp_path, {"gate": FLOW}, SAYSO_METRICS="0") as bot:
        base = (await bot.said("metrics:")).split()[1].removesuffix("/metrics")
        for _ in range(2):
            await start_flow(workspace, "ana", "ops", "gate", says="Go?")
        store = open_store(f"sqlite:///{bot.home / 'sayso.db'}")
        last, first = sorted(store.sessions.heads(), key=lambda head: head.created_at, reverse=True)
        store.quarantine(first.session_id, "damaged", last.created_at)
        store.close()
        found = samples((await got(f"{base}/metrics"))[1])
    assert found["sayso_sessions_quarantined",] == 1
    assert found["sayso_prompts_open", "gate"] == 1
    assert found["sayso_prompt_oldest_seconds",] > 0


async def test_an_address_that_does_not_exist_is_said_at_the_start(
    workspace: Workspace, tmp_path: Path
) -> None:
    """In the resolver's words."""
    bot = BotProcess(workspace, tmp_path, tmp_path, SAYSO_METRICS="nowhere.invalid:9464")
    await bot.launch()
    told = await bot.said("sayso_metrics: cannot listen on nowhere.invalid:9464")
    assert "Unknown error" not in told
    assert await bot.ended() == 7


async def test_an_address_that_is_taken_is_said_at_the_start(workspace: Workspace, tmp_path: Path) -> None:
    """One sentence that names the setting; nothing was served."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        bot = BotProcess(workspace, tmp_path, tmp_path, SAYSO_METRICS=str(port))
        await bot.launch()
        await bot.said(f"sayso_metrics: cannot listen on 127.0.0.1:{port}: address already in use")
        assert await bot.ended() == 7
