"""Sockets that are closed, cut, silent or deaf, with the real bot: nothing lost, nothing double."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.workspace.faults import DisconnectMode
from tests.support.acting import Workspace
from tests.support.bot import counted, running_bot, start_flow
from tests.support.proving import sampled

pytestmark = pytest.mark.process

MARK = """
flow: mark
inputs: {{name: {{type: string}}}}
nodes:
  - {{id: note, type: shell, with: {{run: [sh, -c, 'echo "$NAME" >> {file}'], env: {{NAME: "{{{{ inputs.name }}}}"}}}}}}
"""
GATE = """
flow: gate
inputs: {{name: {{type: string}}}}
nodes:
  - {{id: ask, type: approval, with: {{message: "Shall I, {{{{ inputs.name }}}}?", approvers: [channel]}}}}
  - {{id: note, type: shell, with: {{run: [sh, -c, 'echo "$NAME" >> {file}'], env: {{NAME: "{{{{ inputs.name }}}}"}}}}}}
"""
UNLIMITED = {"SAYSO_RATE_PERSON": "off", "SAYSO_RATE_CHANNEL": "off", "SAYSO_RATE_WORKSPACE": "off"}
EVENTS = 24


async def both_connected(workspace: Workspace) -> None:
    """Wait until both of the bot's sockets carry events."""
    await workspace.wait_for(lambda: len(workspace.core.sockets.usable()) == 2, timeout=40)


@pytest.mark.parametrize("mode", ["graceful", "abrupt"])
async def test_sockets_that_close_in_turn_lose_nothing(
    workspace: Workspace, tmp_path: Path, mode: DisconnectMode
) -> None:
    """While mentions come, the older of two sockets is closed again and again: each mention counts once."""
    file = tmp_path / "effects"
    async with running_bot(workspace, tmp_path, {"mark": MARK.format(file=file)}, **UNLIMITED):
        for number in range(EVENTS):
            if number % 6 == 0:
                await both_connected(workspace)
                workspace.faults.disconnect_all(mode, place=0)
            await workspace.post("ana", "ops", f"@sayso mark name=n{number}")
        await workspace.wait_for(lambda: len(counted(file)) >= EVENTS, timeout=40)
        await both_connected(workspace)
        await workspace.settled()
    assert sorted(counted(file)) == sorted(f"n{number}" for number in range(EVENTS))
    assert not [delivery for delivery in workspace.deliveries if delivery.state == "dropped"]


async def test_a_press_at_a_reconnect_is_taken(workspace: Workspace, tmp_path: Path) -> None:
    """Presses are delivered once and never again: with two sockets one is always there to take them."""
    file = tmp_path / "effects"
    async with running_bot(workspace, tmp_path, {"gate": GATE.format(file=file)}):
        for number in range(3):
            thread = await start_flow(workspace, "ana", "ops", f"gate name=n{number}")
            asked = await thread.says(f"Shall I, n{number}?")
            await both_connected(workspace)
            workspace.faults.disconnect_all("graceful", place=0)
            await thread.approve("ben", asked)
        await workspace.wait_for(lambda: len(counted(file)) == 3)
    assert counted(file) == ["n0", "n1", "n2"]


@pytest.mark.parametrize("mode", sampled(["silent", "deaf"], ["silent"]))
async def test_sockets_that_carry_nothing_are_opened_anew_and_what_was_missed_is_read(
    workspace: Workspace, tmp_path: Path, mode: DisconnectMode
) -> None:
    """They seem to be open; what was said meanwhile is found, once, and what comes then is heard."""
    file = tmp_path / "effects"
    workspace.faults.ack_timeout = 0.2
    workspace.faults.reconnect_window = 0.1
    flows = {"mark": MARK.format(file=file)}
    async with running_bot(workspace, tmp_path, flows, SAYSO_QUIET="3s"):
        # The last thing that is asked for when everything is read at the start.
        await workspace.wait_for(lambda: len(workspace.calls_to("users.conversations")) == 3)
        await workspace.settled()
        workspace.faults.disconnect_all(mode)
        await workspace.post("ana", "ops", "@sayso mark name=missed")
        await workspace.wait_for(lambda: counted(file) == ["missed"], timeout=40)
        workspace.faults.ack_timeout = 3.0
        await both_connected(workspace)
        await workspace.post("ana", "ops", "@sayso mark name=heard")
        await workspace.wait_for(lambda: len(counted(file)) == 2, timeout=40)
    assert counted(file) == ["missed", "heard"]


async def test_one_deaf_socket_of_two_is_found_by_what_the_other_hears(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Slack spreads envelopes: where all come through one socket, the other one is opened again."""
    file = tmp_path / "effects"
    workspace.faults.ack_timeout = 0.1
    async with running_bot(workspace, tmp_path, {"mark": MARK.format(file=file)}) as bot:
        workspace.faults.disconnect_all("deaf", place=0)
        for number in range(40):
            await workspace.post("ana", "ops", f"talk {number}")
        await bot.said("none through it", timeout=40)
        workspace.faults.ack_timeout = 3.0
        await both_connected(workspace)
        await workspace.post("ana", "ops", "@sayso mark name=heard")
        await workspace.wait_for(lambda: counted(file) == ["heard"], timeout=40)
