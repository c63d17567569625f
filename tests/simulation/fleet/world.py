"""The world around a fleet for one seed: time, people, workers that come and go, and what was seen."""

from __future__ import annotations

import logging
import random
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson

from engine.flow import Flow
from engine.journal.events import SCHEMA_VERSION
from engine.journal.records import Commit, Consumed, InboxItem, InboxRow
from engine.language import timestamps
from engine.run.remote_commands import item
from engine.storage.lanes import SEND
from tests.simulation.fleet.server import Server
from tests.simulation.fleet.weather import FleetWeather, draw
from tests.simulation.fleet.worker import Worker
from tests.simulation.timeline import Stuck, Timeline
from tests.support.engine import ANA, BEN, flow_of
from tests.support.releases import NEWER

EPOCH = 1_790_000_000.0
MOST_SECONDS = 400.0
"""After so many seconds without faults everything must be settled."""
MOST_LIVES = 60
MOST_LOOKS = 50
"""How often a worker looks for work within a second at the most: twice what was seen."""
MOST_TAKES = 20
"""How often a row is taken up at the most: twice what was seen."""
CHANNELS = ("C1", "C2", "C3", "C4")

FLOWS: dict[str, str] = {
    "asks": """
nodes:
  - {id: one, type: ask, with: {message: "How?"}}
  - {id: run, type: shell, with: {run: [one]}}
  - {id: two, type: ask, with: {message: "Why?", choices: [a, b]}}
  - {id: said, type: message, with: {text: "{{ nodes.one.text }}"}}
""",
    "gate": """
nodes:
  - {id: gate, type: approval, with: {message: "Go?", approvers: [channel], on_reject: continue}}
  - {id: run, type: shell, on_crash: again, with: {run: [gate]}}
  - {id: rest, type: wait, with: {for: 3s}}
  - {id: done, type: shell, with: {run: [done]}}
""",
    "each": """
nodes:
  - id: each
    type: foreach
    with: {items: [eu, us], as: region}
    body:
      - {id: run, type: shell, with: {run: ["{{ region }}"]}}
      - {id: tell, type: message, with: {text: "{{ region }}"}}
      - {id: ask, type: ask, with: {message: "How is {{ region }}?"}}
""",
    "side": """
nodes:
  - id: all
    type: parallel
    branches:
      left: [{id: one, type: ask, with: {message: "One?"}}]
      right: [{id: two, type: ask, with: {message: "Two?"}}]
  - {id: run, type: shell, with: {run: [both]}}
  - {id: tell, type: message, with: {text: "Both"}}
""",
    "lock": """
flow: demo
lock: harbour
nodes:
  - {id: dock, type: shell, with: {run: [dock]}}
  - {id: leave, type: ask, with: {message: "Leave?"}}
""",
}


def flows() -> dict[str, Flow]:
    """The flows of all seeds, read once."""
    return {name: flow_of(text) for name, text in FLOWS.items()}


@dataclass
class FleetOutcome:
    """What a seed gave."""

    seed: int
    problems: list[str]
    trace: list[str]
    tried: Counter[str]


@dataclass
class FleetWorld:
    """One run."""

    flows: dict[str, Flow]
    seed: int
    folder: Path
    weather: FleetWeather | None = None  # type: ignore[assignment]  # drawn from the seed unless given
    timeline: Timeline = field(init=False, default_factory=Timeline)
    trace: list[str] = field(init=False, default_factory=list)
    problems: list[str] = field(init=False, default_factory=list)
    ran: list[tuple[str, str, int]] = field(init=False, default_factory=list)
    """The commands that ran: session, path, attempt."""
    suffered: Counter[str] = field(init=False, default_factory=Counter)
    workers: list[Worker] = field(init=False, default_factory=list)
    """Those that live, frozen ones too."""
    buried: list[Worker] = field(init=False, default_factory=list)
    sent: dict[str, float] = field(init=False, default_factory=dict)
    """When each row became visible, by its key."""
    lanes: dict[str, list[InboxRow]] = field(init=False, default_factory=dict)
    """The rows of each lane in the order in which they could be seen."""
    sessions: dict[str, str] = field(init=False, default_factory=dict)
    posted: list[str] = field(init=False, default_factory=list)
    """The keys of the messages in the channels."""
    ended: set[str] = field(init=False, default_factory=set)
    done: list[int] = field(init=False, default_factory=list)
    """Rows in the order in which they were consumed."""
    epochs: dict[str, tuple[int, Worker]] = field(init=False, default_factory=dict)
    """The epoch of each session, and whose it is."""
    held: dict[str, Worker] = field(init=False, default_factory=dict)
    """Who has claimed a session."""
    looked: Counter[tuple[int, int]] = field(init=False, default_factory=Counter)
    taken: Counter[str] = field(init=False, default_factory=Counter)
    lives: int = 0
    release: int = SCHEMA_VERSION
    over: bool = False

    def __post_init__(self) -> None:
        self.chance = Random(f"fleet {self.seed}")
        if self.weather is None:
            self.weather = draw(self.chance)
        self.now = timestamps.clock(lambda: EPOCH + self.timeline.now)
        self.server = Server(self)
        self.store = self.server.open()

    def note(self, line: str) -> None:
        """Something happened: a line of the trace."""
        self.trace.append(f"{self.timeline.now:.6f} {line}")

    def trouble(self, line: str) -> None:
        """Something happened that must not happen."""
        self.note(f"TROUBLE {line}")
        self.problems.append(line)

    # --- what workers do -----------------------------------------------------------------------------------

    def accepted(self, worker: Worker, commit: Commit) -> None:
        """A commit was stored."""
        session, before = commit.session_id, self.epochs.get(commit.session_id)
        if before is not None and commit.epoch < before[0]:
            self.trouble(f"{session} went back from epoch {before[0]} to {commit.epoch}")
        if before is not None and commit.epoch == before[0] and before[1] is not worker:
            self.trouble(f"epoch {commit.epoch} of {session} has two owners")
        other = self.held.get(session)
        if commit.owner is not None and other is not None and other is not worker and other.leased:
            self.trouble(f"{session} was taken from {other.number}, whose lease holds")
        self.epochs[session] = commit.epoch, worker
        if commit.release:
            self.held.pop(session, None)
        elif commit.owner is not None or commit.new is not None:
            self.held[session] = worker
        self.consumed(commit.consumed)
        for body in commit.events:
            event = orjson.loads(body)
            if event["type"] == "prompt:requested":
                self.timeline.after(
                    self.chance.uniform(0.2, 12.0), lambda event=event: self._answer(session, event)
                )
            elif event["type"] == "session:end":
                self.ended.add(session)
        self.note(f"{worker.number} commits {session} {commit.epoch}.{commit.seq} +{len(commit.events)}")

    def consumed(self, consumed: Sequence[Consumed]) -> None:
        """Rows were consumed."""
        for each in consumed:
            if each.inbox_id in self.done:
                self.trouble(f"row {each.inbox_id} was consumed twice")
            self.done.append(each.inbox_id)

    def looks(self, worker: Worker) -> None:
        """A worker looks for lanes: now and then, and when it is woken."""
        moment = worker.number, int(self.timeline.now)
        self.looked[moment] += 1
        if self.looked[moment] == MOST_LOOKS:
            self.trouble(f"{worker.number} looks {MOST_LOOKS} times in a second")

    def handles(self, worker: Worker, lane: str, row: InboxRow) -> None:
        """A worker takes a row up. One that was silent may try: nothing comes of it."""
        if worker.steady() and self.server.owner_of(lane) != worker.store.lanes.owner:
            self.trouble(f"{worker.number} works on {lane}, which is not its own")
        self.note(f"{worker.number} handles {row.key}")
        self.taken[row.key] += 1
        if self.taken[row.key] == MOST_TAKES:
            self.trouble(f"{row.key} is taken up again and again")

    def posts(self, worker: Worker) -> None:
        """A worker begins to post."""
        if worker.steady() and self.server.owner_of(SEND) != worker.store.lanes.owner:
            self.trouble(f"{worker.number} posts, and another one does")

    def died(self, worker: Worker) -> None:
        """Another process is started in its place, a while later."""
        if worker in self.workers:
            self.workers.remove(worker)
            self.buried.append(worker)
            if not self.over:
                self.timeline.after(self.chance.uniform(0.5, 8.0), self._begin)

    def fate(self) -> tuple[int, str] | None:
        """What becomes of a new worker, and at which of its points."""
        weather = self.weather
        for name, likely in (
            ("kill", weather.kills),
            ("freeze", weather.freezes),
            ("partition", weather.partitions),
        ):
            if self.chance.random() < likely:
                return self.chance.randint(1, weather.fate_within), name
        return None

    def _begin(self) -> None:
        if len(self.workers) >= self.weather.workers:
            return
        self.lives += 1
        if self.lives > MOST_LIVES:
            raise Stuck(f"{MOST_LIVES} lives and no end")
        self.note(f"start {self.lives} of release {self.release}")
        self.workers.append(Worker(self, self.lives, self.release))

    # --- people --------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        chance = self.chance
        for number in range(chance.randint(3, 6)):
            name = chance.choice(list(FLOWS))
            self.timeline.after(chance.uniform(0.0, 15.0), lambda n=number, f=name: self._start(n, f))
        for _ in range(self.weather.workers):
            self.timeline.after(chance.uniform(0.0, 2.0), self._begin)
        storm = chance.uniform(25.0, 60.0)
        if self.weather.mixed:
            for share, release in ((0.25, NEWER), (0.5, SCHEMA_VERSION), (0.9, NEWER)):
                self.timeline.after(storm * share, lambda release=release: self._roll(release))
        self.timeline.after(storm, self._calm)

    def _start(self, number: int, flow: str) -> None:
        session, thread = f"session-{number}", f"T1:{self.chance.choice(CHANNELS)}:{number}.1"
        self.sessions[session] = thread
        payload = orjson.dumps({"flow": flow, "session": session, "channel": thread.split(":")[1]})
        self._send(InboxItem(f"start:{number}", "start", payload, session, thread))

    def _answer(self, session: str, event: dict[str, Any]) -> None:
        prompt, options = event["promptId"], event["prompt"].get("options") or []
        values = [option["value"] for option in options]
        given = {"text": f"word {prompt}"}
        if values:
            given = {"value": "again" if "again" in values else self.chance.choice(values)}
        rude = self.chance.random() < self.weather.rude
        for times, actor in enumerate((ANA, BEN) if rude else (ANA,)):
            key = f"answer:{prompt}:{times}"
            asked = item(key, session, "answer", actor=actor, promptId=prompt, **given)
            kind = "newer" if self.weather.mixed and self.release == NEWER and times else asked.kind
            self._send(InboxItem(key, kind, asked.payload, session, self.sessions[session]))
            if rude and self.chance.random() < 0.5:
                self.timeline.after(self.chance.uniform(0.0, 9.0), lambda asked=asked: self._send(asked))

    def _send(self, row: InboxItem) -> None:
        """A row is stored by some process of the fleet that hears Slack, and then all are woken, or not."""
        (row_id,) = self.store.inbox.ingest([row], self.now())
        self.note(f"stored {row.key} as {row_id}")
        if row_id is None:
            return
        if self.chance.random() < self.weather.late_rows:
            self.server.hidden.add(row_id)
            late = self.chance.uniform(0.01, 2.0)
            self.timeline.after(late, lambda: self._visible(row, row_id))
        else:
            self._visible(row, row_id)

    def _visible(self, row: InboxItem, row_id: int) -> None:
        self.server.hidden.discard(row_id)
        self.sent[row.key] = self.timeline.now
        stored = self.store.inbox.row(row.key)
        assert stored is not None
        self.lanes.setdefault(stored.thread_key or stored.key, []).append(stored)
        self.note(f"{row.key} can be seen")
        with self.store._db.write():
            self.store.lanes.arrive(stored.thread_key or stored.key)
        self.tell()

    def tell(self) -> None:
        """Something was committed that others may wait for: see `Store.listen`."""
        weather, chance = self.weather, self.chance
        for worker in self.workers:
            if chance.random() < weather.wakeup_lost:
                continue
            for _ in range(2 if chance.random() < weather.wakeup_twice else 1):
                self.timeline.after(chance.uniform(0.0, weather.wakeup_late), worker.wake)

    # --- releases ------------------------------------------------------------------------------------------

    def _roll(self, release: int) -> None:
        """Another release is installed: one worker after the other is replaced."""
        self.note(f"release {release}")
        self.release = release
        for n, worker in enumerate([one for one in self.workers if one.release != release]):
            self.timeline.after(
                n * self.chance.uniform(0.5, 4.0), lambda worker=worker: self._replace(worker)
            )

    def _replace(self, worker: Worker) -> None:
        if not worker.dead and worker.release != self.release:
            kind = self.chance.choice(("leaves", "dies"))
            self.note(f"replaced {worker.number}, which {kind}")
            worker.leave() if kind == "leaves" else worker.die()

    # --- the run -------------------------------------------------------------------------------------------

    def run(self) -> FleetOutcome:
        """Let everything happen."""
        state = random.getstate()
        random.seed(self.seed)
        ear = _Ear(self)
        logger = logging.getLogger("sayso")
        logger.addHandler(ear)
        logger.propagate = False
        try:
            self._plan()
            while not self.over:
                self._turn()
        except Stuck as stuck:
            self.trouble(str(stuck))
        finally:
            self.over = True
            self.timeline.rest()
            for worker in [*self.workers, *self.buried]:
                worker.bury()
            logger.removeHandler(ear)
            logger.propagate = True
            random.setstate(state)
        tried = Counter({"seeds": 1, "lives": self.lives, "rows": len(self.sent), **self.suffered})
        return FleetOutcome(self.seed, self.problems, self.trace, tried)

    def _turn(self) -> None:
        """Let everybody do what is due; then go on to the next moment at which something is."""
        ready = [worker for worker in self.workers if self._due(worker) <= self.timeline.now]
        self.chance.shuffle(ready)
        for worker in ready:
            if not worker.dead and not worker.frozen:
                worker.slice()
        if ready:
            self.timeline.spin()
        else:
            due = min(map(self._due, self.workers), default=float("inf"))
            self.timeline.advance(None if due == float("inf") else due - self.timeline.now)

    @staticmethod
    def _due(worker: Worker) -> float:
        due = worker.due()
        return float("inf") if due is None else due

    def _calm(self) -> None:
        """All faults end."""
        self.note("calm")
        self.weather.clear()
        for worker in self.workers:
            worker.spare()
        self._calm_at = self.timeline.now
        self.timeline.after(5.0, self._settled)

    def _settled(self) -> None:
        """Whether everything has ended; else look again later."""
        if self.ended == set(self.sessions) and not self.store.inbox.rows(limit=1):
            self.over = True
        elif self.timeline.now - self._calm_at > MOST_SECONDS:
            left = sorted(set(self.sessions) - self.ended)
            self.trouble(f"nothing settles: {left}, {[row.key for row in self.store.inbox.rows()]}")
            self.over = True
        else:
            self.timeline.after(2.0, self._settled)


class _Ear(logging.Handler):
    """Hears what workers log: what has a traceback was not foreseen."""

    def __init__(self, world: FleetWorld) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Note it; what is unhandled is trouble."""
        text = record.getMessage()
        self._world.note(f"log {record.levelname} {text[:200]}")
        if record.exc_info and record.exc_info[0] is not None:
            where = "".join(traceback.format_exception(*record.exc_info)[-4:])
            self._world.trouble(f"unhandled: {text}\n{where}")
