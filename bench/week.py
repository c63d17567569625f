"""A simulated week of metrics, to look at `deploy/grafana.json` with data: `python -m bench.week FOLDER`.

The counters are those of the bot (`bot.serve.metrics`), told of sessions that start, ask and end by a seeded plan: few at night, two
incidents, people who answer in minutes by day and in hours by night. They are read every two minutes of a clock that is
not the real one, written with their times, and `promtool` makes a database of them. Then Prometheus is asked
what each panel and each alert asks it; a panel without data is said, and is exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from heapq import heappop, heappush
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import yaml
from immutables import Map

from bot.serve.metrics import Metrics, Sources
from engine.journal import events as ev
from engine.journal.records import NANO, Counts
from engine.journal.state import Asked, State
from engine.language import timestamps

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
DAYS, EVERY = 7, 120
FLOWS = {"deploy": "@release", "restart": "@oncall", "access": "rota:security", "triage": "channel"}
PORT = 19090


class Week:
    """The sessions of a week, and what waits at a moment of it. Stands in for an engine and its store."""

    def __init__(self, begin: float) -> None:
        self.now, self._chance, self._due = begin, random.Random(7), [(begin, 0, "start", "")]
        self._number, self._asked = 0, dict[str, Asked]()
        self._begin, self._spent = begin, Counter[str]()
        self.refusals = Counter[str]()
        self.engine: Any = SimpleNamespace(
            subscribe=self._subscribe, writer=self, store=None, dropped_spans=lambda: self._number // 400
        )

    def _subscribe(self, happened: Any, *about: Any) -> None:
        self._happened = happened

    async def call(self, *_: Any) -> tuple[Counts, str | None, int, bool]:
        """What a reading takes from the store."""
        oldest = min((asked.requested_at for asked in self._asked.values()), default=None)
        return self._counts(), oldest, self._spent[self.text()[:10]], False

    def text(self) -> str:
        """Now, as it is stored."""
        return timestamps.to_text(datetime.fromtimestamp(self.now, UTC))

    def _counts(self) -> Counts:
        behind = int(self.incident() * 40)
        flows = Counter(path.partition("/")[0] for path in (asked.path for asked in self._asked.values()))
        late = timestamps.to_text(datetime.fromtimestamp(self.now - 300 * self.incident() - 1, UTC))
        return Counts(
            sessions={"running": 1 + behind // 8, "paused": len(self._asked)},
            prompts=dict(flows),
            inbox=behind,
            outbox=behind // 2,
            dead=int(self.now > self._begin + 3.2 * 86400),
            oldest_inbox=late if behind else None,
            oldest_outbox=late if behind else None,
            quarantined=0,
        )

    def incident(self) -> float:
        """How bad it is, from 0 to 1: two hours on the third and on the fifth day."""
        passed = (self.now - self._begin) / 3600
        return max(0.0, 1 - min(abs(passed - 62), abs(passed - 110)))

    # --- what happens --------------------------------------------------------------------------------------

    def until(self, moment: float) -> None:
        """Let everything happen that is due."""
        while self._due and self._due[0][0] <= moment:
            self.now, _, what, key = heappop(self._due)
            getattr(self, f"_{what}")(key)
        self.now = moment
        if self.incident() > 0.5:
            self.refusals["chat.postMessage"] += self._chance.randrange(4)

    def _later(self, seconds: float, what: str, key: str) -> None:
        self._number += 1
        heappush(self._due, (self.now + seconds, self._number, what, key))

    def _busy(self) -> float:
        """How many work now, from 0 to 1."""
        hour = datetime.fromtimestamp(self.now, UTC).hour
        return 1.0 if 8 <= hour < 18 else 0.15

    def _start(self, _: str) -> None:
        flow = self._chance.choice(list(FLOWS))
        self._later(self._chance.expovariate((self._busy() + 3 * self.incident()) / 400), "start", "")
        self._tell(
            flow, ev.SessionStarted, session_id="s", flow_name=flow, flow_digest="", given={}, actor={}
        )
        for outcome in self._chance.choices(("completed", "retried"), (20, 1), k=4):
            self._ended(flow, outcome)
        key = f"{flow}/ok{self._number}"
        who = (FLOWS[flow],)
        self._asked[key] = Asked(
            kind="approval", approvers=who, prompt_id=key, path=key, status="shown", requested_at=self.text()
        )
        self._later(self._chance.lognormvariate(5.5, 1.2) / self._busy(), "decide", key)

    def _ended(self, flow: str, outcome: str) -> None:
        error: dict[str, Any] = {"path": "n", "node_id": "n", "attempt": 1, "error": {"type": "exit_code"}}
        if outcome == "completed":
            self._tell(flow, ev.NodeCompleted, path="n", node_id="n")
        elif outcome == "retried":
            self._tell(flow, ev.NodeRetried, timer_id="t", due_at=self.text(), **error)
        else:
            self._tell(flow, ev.NodeFailed, **error)

    def _decide(self, key: str) -> None:
        flow, asked = key.partition("/")[0], self._asked.pop(key)
        answer = self._chance.choices(("approve", "reject", "expire"), (80, 12, 8))[0]
        state = {"prompts": Map({key: asked})}
        if answer == "expire":
            self._tell(flow, ev.PromptExpired, state, outcome="fail", prompt_id=key, path=key)
        else:
            given: dict[str, Any] = {"prompt_id": key, "path": key, "key": key, "actor": {}}
            self._tell(flow, ev.PromptAnswered, state, answer={"value": answer}, **given)
        failed = answer != "approve" or self._chance.random() < 0.05
        self._ended(flow, "failed" if failed else "completed")
        self._tell(flow, ev.SessionEnd, status="failed" if failed else "complete")
        self._spent[self.text()[:10]] += round(self._chance.random() * 0.4 * NANO)

    def _tell(self, flow: str, kind: Any, state: dict[str, Any] | None = None, **fields: Any) -> None:
        self._happened(State(flow_name=flow, **(state or {})), [kind(seq=1, timestamp=self.text(), **fields)])


async def write(file: TextIO, end: float) -> int:
    """Write a week that ends then, as OpenMetrics; how many samples."""
    week, number = Week(end - DAYS * 86400), 0

    async def connected() -> int:
        return 0 if week.incident() > 0.9 else 2

    metrics = Metrics(Sources(week.engine, week.refusals, connected, 20, week.text))
    for moment in range(int(week.now) + EVERY, int(end) + 1, EVERY):
        week.until(moment)
        for line in (await metrics.read()).decode().splitlines():
            if not line.startswith("#") and "_created" not in line:
                file.write(f"{line} {moment}\n")
                number += 1
        file.write(f'up{{job="sayso"}} 1 {moment}\n')
    file.write("# EOF\n")
    return number


@contextmanager
def prometheus(folder: Path) -> Iterator[str]:
    """Prometheus over the database in a folder, with the alerts: its address."""
    config = folder / "prometheus.yml"
    config.write_text(f"rule_files: [{DEPLOY / 'alerts.yml'}]\n")
    place = f"127.0.0.1:{PORT}"
    words = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    words += [f"--web.listen-address={place}", "--storage.tsdb.retention.time=10y", "--log.level=error"]
    with subprocess.Popen(words) as process:
        try:
            for _ in range(200):
                try:
                    urllib.request.urlopen(f"http://{place}/-/ready").close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield f"http://{place}"
        finally:
            process.terminate()


def values(address: str, query: str, end: float) -> int:
    """How many values a query has over the week, by the hour, that are numbers."""
    about = {"query": query, "start": end - DAYS * 86400, "end": end, "step": 3600}
    with urllib.request.urlopen(f"{address}/api/v1/query_range?{urllib.parse.urlencode(about)}") as answer:
        found = json.load(answer)["data"]["result"]
    return sum(value != "NaN" for series in found for _, value in series["values"])


def queries() -> Iterator[tuple[str, str]]:
    """What the panels and the alerts ask, with their titles; of an alert what it looks at, without its limit."""
    for panel in json.loads((DEPLOY / "grafana.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]:
        yield rule["alert"], re.split(r" (?:[<>]=?|==|and|unless) ", rule["expr"])[0]


def main() -> int:
    """Make the week, and ask for it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--serve", action="store_true", help="go on serving it, for Grafana")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    end, file = time.time() // EVERY * EVERY, given.folder / "week.om"
    with file.open("w") as stream:
        print(f"{asyncio.run(write(stream, end)):,} samples of {DAYS} days")
    making = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", file, given.folder / "data"]
    subprocess.run(making, check=True)
    with prometheus(given.folder) as address:
        empty = 0
        for title, query in queries():
            number = values(address, query, end)
            empty += not number
            print(f"{number or 'NO DATA':>8}  {title}: {query}")
        if given.serve:
            input(
                f"{address} until Enter: make it a data source of Grafana and import {DEPLOY / 'grafana.json'}. "
            )
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
