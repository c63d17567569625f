"""Alike approvals that are decided together from the Home, while the process dies at one write after the other."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bot.views.home import Together
from bot.workspace import NotAcknowledged
from engine.journal.events import PromptAnswered, decode_event
from engine.journal.records import Consumed, InboxRow
from engine.language.errors import Fenced
from engine.testing import crashes
from tests.e2e.test_home_decisions import RING, press_home, shows
from tests.support.bot import ThreadView, start_flow
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, inhabited_town, simulated

HOSTS = ("web-0", "web-1", "web-2")
SPARED = "web-1"
MOST_WRITES = 10
"""Writes from the submission on until the first thread shows what was decided."""


class Dying:
    """A store that dies at a write with this number: from then on nothing is written, whatever the process still does."""

    def __init__(self, store: Any, at: int) -> None:
        self.at, self.writes = at, 0
        store.commit = self._counted(store.commit)
        for part, names in crashes.WRITES.items():
            for name in names:
                place = getattr(store, part) if part else store
                setattr(place, name, self._counted(getattr(place, name)))

    @property
    def dead(self) -> bool:
        """Whether the process is dead."""
        return 0 < self.at <= self.writes

    def _counted(self, write: Any) -> Any:
        def counted(*args: Any, **named: Any) -> Any:
            self.writes += 1
            if self.dead:
                raise Fenced("this process is dead")
            return write(*args, **named)

        return counted


async def decide(workspace: TownWorkspace) -> None:
    """Dev approves all but one from the Home."""
    await press_home(workspace, "dev", "Decide 3 together…")
    await workspace.wait_for(lambda: workspace.views("dev"))
    view = workspace.views("dev")[-1]
    spared = next(block for block in view["blocks"] if SPARED in str(block.get("label")))["block_id"]
    given = {"decision": "approve", "reason": "checked", spared: []}
    await workspace.submit_view("dev", view["id"], given)


async def decided(folder: Path, dies_at: int) -> None:
    """Decide, with a process that dies at this write (0: at none) and another one after it."""
    async with inhabited_town(below(folder, dies_at), {"ring": RING}) as (workspace, place):
        await workspace.open_home("dev")
        threads = {host: await start_flow(workspace, "ana", "ops", f"ring host={host}") for host in HOSTS}
        await shows(workspace, "dev", "3 alike")
        await place.settle()
        dying = Dying(place.store, dies_at)
        taken = True
        try:
            await decide(workspace)
        except (NotAcknowledged, AssertionError, TimeoutError):
            taken = False
        if dying.at:
            await place.until(lambda: dying.dead)
            with suppress(Exception):
                await place.close()
            await place.open()
            await workspace.open_home("dev")
        if not taken:
            await shows(workspace, "dev", "3 alike")
            await decide(workspace)
        await each_decided_once(place, threads)


def below(folder: Path, number: int) -> Path:
    place = folder / str(number)
    place.mkdir()
    return place


async def each_decided_once(place: Town, threads: dict[str, ThreadView]) -> None:
    """All but one are approved, each by one event and with one message; that one waits. Dev has been sent
    each question, and nothing else."""
    for host in (host for host in HOSTS if host != SPARED):
        await threads[host].says(f"{host}: approve checked")
    await place.settle()
    events = [
        decode_event(body)
        for head in place.store.sessions.heads()
        for body in place.store.sessions.journal(head.session_id)
    ]
    answered = [event.prompt_id for event in events if isinstance(event, PromptAnswered)]
    assert len(answered) == len(set(answered)) == len(HOSTS) - 1
    said = {host: threads[host].count(f"{host}: approve") for host in HOSTS}
    assert said == {host: int(host != SPARED) for host in HOSTS}
    assert len(place.store.prompts.rows(statuses=("requested", "shown"))) == 1


@simulated
async def test_a_bulk_decision_is_carried_out_once_each_wherever_the_process_dies(tmp_path: Path) -> None:
    """Before each write in turn, from the submission to the first thread that shows its decision: each approval is decided
    once, and none is lost."""
    for number in range(MOST_WRITES + 1):
        await decided(tmp_path, number)


@simulated
async def test_a_submission_that_is_done_before_its_decisions_are_stored_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded fault: who dies in between has lost them."""
    submit = Together.submit

    async def forgetting(self: Together, row: InboxRow, data: dict[str, Any]) -> bool:
        writer, done = self._engine.writer, [Consumed(row.id, "applied")]
        await writer.call(writer.store.consume, done, self._engine.now(), [])
        return await submit(self, row, data)

    monkeypatch.setattr(Together, "submit", forgetting)
    with pytest.raises(TimeoutError):
        await decided(tmp_path, 3)
