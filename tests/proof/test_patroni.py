"""A failover as Patroni does it: the machine of the primary dies while people answer, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.workspace import NotAcknowledged
from tests.support.bot import ThreadView, start_flow
from tests.support.fleet import fleet
from tests.support.patroni import Cluster, installed
from tests.support.workspace import running_workspace

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(600)]
COUNT = 20
DIES_AT = 5
UNLIMITED = {f"SAYSO_RATE_{what}": "off" for what in ("PERSON", "CHANNEL", "WORKSPACE")}
FLOW = """flow: failover
inputs: {{n: {{type: string}}}}
nodes:
  - {{id: first, type: shell, with: {{script: 'echo "first $N" >> {log}', env: {{N: "{{{{ inputs.n }}}}"}}}}}}
  - {{id: q, type: ask, with: {{message: "Go on?", choices: [Yes, No]}}}}
  - {{id: second, type: shell, with: {{script: 'echo "second $N $(date +%s.%N)" >> {log}', env: {{N: "{{{{ inputs.n }}}}"}}}}}}
  - {{id: tell, type: message, with: {{text: "All is done"}}}}
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two servers and Patroni."""
    installed()
    found = Cluster()
    yield found
    found.close()


class Person:
    """Somebody who presses a button, and again after a while where Slack said that it did not work."""

    def __init__(self, thread: ThreadView) -> None:
        self.thread, self.presses, self.acknowledged = thread, 0, 0.0

    async def press(self) -> None:
        """Press until it is acknowledged. After that nobody presses again: what was acknowledged must count."""
        message = await self.thread.says("Go on?")
        while not self.acknowledged:
            self.presses += 1
            try:
                await self.thread.press("ana", message, "Yes")
                self.acknowledged = time.time()
            except NotAcknowledged:
                await asyncio.sleep(1)


async def test_a_failover_by_patroni_loses_no_acknowledged_reply(cluster: Cluster, tmp_path: Path) -> None:
    """The primary and its Patroni are killed while twenty sessions are answered: the synchronous standby takes over, each
    session continues with its answer, no step runs twice, and no process ends."""
    log = tmp_path / "log"
    flows = {"failover": FLOW.format(log=log)}
    async with (
        running_workspace() as workspace,
        fleet(workspace, tmp_path, flows, "all", "all", url=cluster.url, **UNLIMITED) as bots,
    ):
        threads = [
            await start_flow(workspace, "ana", ("ops", "releases")[n % 2], f"failover n=n{n}")
            for n in range(COUNT)
        ]
        await asyncio.gather(*(thread.says("Go on?", timeout=120) for thread in threads))
        before = [len(bot.lines) for bot in bots.bots]
        people, pressing = [Person(thread) for thread in threads], []
        for number, person in enumerate(people):
            if number == DIES_AT:
                died = time.time()
                await asyncio.to_thread(cluster.kill_primary)
            pressing.append(asyncio.create_task(person.press()))
            await asyncio.sleep(0.1)
        await asyncio.gather(*pressing)
        await asyncio.gather(*(thread.says("All is done", timeout=120) for thread in threads))
        codes = [bot.process.returncode for bot in bots.bots]
        told = [bot.lines[count:] for bot, count in zip(bots.bots, before, strict=True)]
    done = Counter(" ".join(line.split()[:2]) for line in log.read_text().splitlines())
    times = [float(line.split()[2]) for line in log.read_text().splitlines() if line.startswith("second")]
    back = min(person.acknowledged for person in people if person.acknowledged > died + 1)
    print(
        f"failover by Patroni (ttl 20 s, synchronous): primary killed → next acknowledged press {back - died:.1f} s, → next node "
        f"{min(at for at in times if at > died + 1) - died:.1f} s; {COUNT} presses acknowledged, "
        f"{sum(person.presses for person in people) - COUNT} not; log lines of a process {[len(lines) for lines in told]}"
    )
    assert done == Counter(f"{step} n{n}" for step in ("first", "second") for n in range(COUNT))
    assert codes == [None, None]
    assert not [line for lines in told for line in lines if "Traceback" in line], told
