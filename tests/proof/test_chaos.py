"""A fleet that is killed, frozen, cut off and left without its server, while people answer: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.proof.chaos import Person, chaos, verdict

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]
SHORT = ["kill", "kill", "cut", "freeze", "kill", "restart", "deafen", "kill"]


async def test_a_fleet_in_chaos_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Every session ends with each effect, answer and message once, and with those that are its own."""
    roles = ["socket", "socket", "worker", "worker", "outbox", "outbox"]
    log = tmp_path / "log"
    async with chaos(tmp_path, roles, 1) as (made, workspace):
        people = [Person(workspace, number, log) for number in range(12)]
        breaking = asyncio.create_task(made.run(SHORT, 2.0))

        async def in_turn(person: Person) -> None:
            await asyncio.sleep(person.number * 1.5)
            await person.live()

        try:
            async with asyncio.timeout(120):
                await asyncio.gather(*map(in_turn, people), breaking)
        except TimeoutError:
            import sys

            for person in people:
                if person.thread is not None and person._next() is not True:
                    print("STUCK", person.number, person.said, person.thread.texts(), file=sys.stderr)
            for m in made.fleet.bots:
                print("BOT", m.arguments, m.process.returncode, *m.lines[-12:], sep="\n   ", file=sys.stderr)
            raise
        await made.settled()
        found = verdict(made, people, log)
    print(found.line(), dict(made.done), "zombies", made.zombies)
    assert not any(vars(found).values()), found
