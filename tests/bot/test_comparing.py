"""After a start with many sessions: the newest are compared first, the others while the bot serves, and whatever is pressed or
said meanwhile finds its own rows as the journal has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot.compose import comparing
from bot.compose.comparing import Comparing
from bot.compose.projections import differences, heads_of
from tests.bot.test_derived import THREAD, Home, asked
from tests.support.engine import EngineRig

UNLOCKED = "flow: asks\nnodes: [{id: sure, type: ask, with: {message: Sure?, timeout: 1h}}]\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of its own, of which one session is compared at a time."""
    monkeypatch.setattr(comparing, "AT_ONCE", 1)
    monkeypatch.setattr(comparing, "SLICE", 1)
    return Home(tmp_path)


def comparing_of(rig: EngineRig) -> Comparing:
    """A comparison as the bot begins one."""

    async def stored(what: str, method: Callable[..., Any], *given: Any) -> Any:
        return await rig.engine.writer.call(method, *given)

    return Comparing(rig.engine, stored)


async def three(rig: EngineRig, home: Home) -> list[str]:
    """Three sessions, each in a thread of its own, whose questions and timers somebody deleted; the oldest first."""
    found = []
    for ts in ("1.0", "2.0", "3.0"):
        thread = {**THREAD, "threadTs": ts, "key": f"T1:C1:{ts}"}
        found.append(await rig.start(UNLOCKED, thread=thread))
        await rig.engine.parked(found[-1])
    home.outside("DELETE FROM prompts")
    home.outside("DELETE FROM timers")
    return found


def wrong(rig: EngineRig) -> list[str]:
    """The sessions whose rows are not what their journals say."""
    return [found.head.session_id for found in differences(rig.store, heads_of(rig.store))]


async def test_the_newest_are_compared_before_anything_is_served_and_all_in_the_end(home: Home) -> None:
    """Where only one process can serve the store, the others follow while it does."""
    async with home.rig() as rig:
        oldest, older, _newest = await three(rig, home)
        compares = comparing_of(rig)
        await compares.first(whole=False)
        assert sorted(wrong(rig)) == sorted([oldest, older])
        await compares.rest()
        assert wrong(rig) == []


async def test_where_others_serve_beside_it_all_are_compared_before(home: Home) -> None:
    """Their presses would not wait."""
    async with home.rig() as rig:
        await three(rig, home)
        compares = comparing_of(rig)
        await compares.first(whole=True)
        assert (wrong(rig), compares.done.is_set()) == ([], True)


async def test_a_thread_is_compared_before_what_is_said_in_it_means_anything(home: Home) -> None:
    """The row of a reply is handled when the questions of its thread are there."""
    async with home.rig() as rig:
        oldest, older, _newest = await three(rig, home)
        compares = comparing_of(rig)
        await compares.first(whole=False)
        await compares.of_thread("T1:C1:1.0")
        assert wrong(rig) == [older]
        [row] = rig.store.prompts.rows(session_id=oldest)
        assert row.status == "requested"


async def test_a_press_on_a_question_without_a_row_waits_for_it(home: Home) -> None:
    """Nobody is told that a question is not known before all were compared."""
    async with home.rig() as rig:
        oldest, *_ = await three(rig, home)
        [prompt_id] = (await rig.engine.state(oldest)).open_prompts
        compares = comparing_of(rig)
        await compares.first(whole=False)
        pressed = asyncio.ensure_future(compares.prompt(prompt_id))
        await asyncio.sleep(0.05)
        assert not pressed.done()
        await compares.rest()
        found = await pressed
        assert found is not None
        assert found.open
        assert await compares.prompt("prompt-of-nobody") is None


async def test_no_session_is_left_out_when_one_is_deleted_meanwhile(home: Home) -> None:
    """The place in the list is found again, and where there is none it begins again."""
    async with home.rig() as rig:
        oldest, older, newest = await three(rig, home)
        compares = comparing_of(rig)
        await compares.first(whole=False)
        home.outside(f"DELETE FROM sessions WHERE session_id = '{newest}'")  # noqa: S608 - our own names
        await compares.rest()
        assert {oldest, older}.isdisjoint(wrong(rig))


async def test_what_was_left_of_a_session_that_is_over_is_taken_away(home: Home) -> None:
    """Its timers and its place in a queue, which somebody wrote back."""
    async with home.rig() as rig:
        over = await asked(rig)
        home.outside("CREATE TABLE times AS SELECT * FROM timers")
        home.outside("CREATE TABLE places AS SELECT * FROM locks")
        await rig.reply(over, "yes")
        home.outside("INSERT INTO timers SELECT * FROM times")
        home.outside("INSERT INTO locks SELECT * FROM places")
        assert rig.store.locks.left_behind() == [over]
        await comparing_of(rig).rest()
        assert rig.store.locks.left_behind() == []
