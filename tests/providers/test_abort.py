"""Waiting that can be aborted: a signal, a cancellation, and both at once are told apart."""

from __future__ import annotations

import asyncio

import pytest

from engine.models.provider import Abortable, Aborted, settle


async def test_what_ends_before_the_signal_is_given() -> None:
    """Results and errors come through, as if nobody could abort."""

    async def fail() -> None:
        raise ValueError("mine")

    abortable = Abortable(asyncio.Event())
    assert await abortable.run(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(ValueError, match="mine"):
        await abortable.run(fail())
    abortable.close()


async def test_a_signal_cancels_what_is_waited_for_and_nothing_else() -> None:
    """The work hears of it and can clean up; the task that waited is not cancelled afterwards."""
    signal, started, cleaned = asyncio.Event(), asyncio.Event(), []

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    async def wait() -> str:
        abortable = Abortable(signal)
        with pytest.raises(Aborted):
            await abortable.run(work())
        await asyncio.sleep(0)
        abortable.close()
        return "went on"

    task = asyncio.ensure_future(wait())
    await started.wait()
    signal.set()
    assert await task == "went on"
    assert cleaned == [True]
    assert task.cancelling() == 0


async def test_a_signal_between_two_waits_stops_the_next_one() -> None:
    """A signal that is set while nobody waits cancels nothing, and what comes next never begins."""
    signal, begun = asyncio.Event(), []

    async def work() -> None:
        begun.append(True)

    abortable = Abortable(signal)
    await abortable.run(asyncio.sleep(0))
    signal.set()
    for _ in range(3):
        await asyncio.sleep(0)
    with pytest.raises(Aborted):
        await abortable.run(work())
    await asyncio.sleep(0)
    assert begun == []
    abortable.close()


async def test_a_cancellation_stays_one_even_beside_a_signal() -> None:
    """Whoever cancels the task is obeyed, with the signal set in the same moment or not at all."""
    for both in (False, True):
        signal, started = asyncio.Event(), asyncio.Event()

        async def work(started: asyncio.Event = started) -> None:
            started.set()
            await asyncio.Event().wait()

        async def wait(signal: asyncio.Event = signal) -> None:
            abortable = Abortable(signal)
            try:
                await abortable.run(work())
            finally:
                abortable.close()

        task = asyncio.ensure_future(wait())
        await started.wait()
        if both:
            signal.set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_what_does_not_end_is_left_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that takes too long to close is cancelled, and one that fails is not complained about."""
    monkeypatch.setattr("engine.models.provider.GRACE", 0.01)

    async def fail() -> None:
        raise ValueError("nobody cares")

    stuck, failing = asyncio.ensure_future(asyncio.Event().wait()), asyncio.ensure_future(fail())
    await settle(stuck)
    await settle(failing)
    await asyncio.sleep(0)
    assert stuck.cancelled()
    assert failing.done()
