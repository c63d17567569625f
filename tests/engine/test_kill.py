"""kill -9 between any two commits, and in the middle of nodes: what completed never runs again.

Effects are lines in files, appended by real programs. A child process (see `killed_child`) is killed and started
again until its session has ended.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.storage.sqlite import open_sqlite
from tests.engine.killed_child import SESSION
from tests.support import prefork
from tests.support.engine import check_starts, counted, until
from tests.support.proving import sampled

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]
FLOW = """
flow: killed
nodes:
  - {{id: one, type: shell, {policy} with: {{script: 'echo one >> "$LOG"', env: {{LOG: "{log}"}}}}}}
  - {{id: q, type: ask, with: {{message: And now?}}}}
  - {{id: two, type: shell, {policy} with: {{script: 'echo two >> "$LOG"', env: {{LOG: "{log}"}}}}}}
  - {{id: three, type: shell, {policy} with: {{script: 'echo "$SAID" >> "$LOG"', env: {{LOG: "{log}", SAID: "{{{{ nodes.q.text }}}}"}}}}}}
"""
SLOW = """
flow: killed
nodes:
  - id: slow
    type: shell
    {policy}
    with:
      script: 'echo begun >> "$LOG"; n=0; while [ ! -e "$GATE" ] && [ $n -lt 3000 ]; do n=$((n+1)); sleep 0.02; done; echo ended >> "$LOG"'
      env: {{LOG: "{log}", GATE: "{gate}"}}
"""


def prepare(folder: Path, flow: str, policy: str, answer: str) -> Path:
    """A folder for a child: its flow, what its person says. Returns the file of effects."""
    log = folder / "log"
    (folder / "flow.yml").write_text(flow.format(log=log, gate=folder / "gate", policy=policy))
    (folder / "answer").write_text(answer)
    return log


def child(folder: Path, point: str = "none") -> prefork.Forked:
    """Start the child."""
    arguments = ["-m", "tests.engine.killed_child", str(folder), point]
    return prefork.start(
        arguments, cwd=ROOT, env=os.environ, stdout=1, stderr=2, read=("tests.support.engine",)
    )


def finish(folder: Path) -> None:
    """Run the child until the session has ended."""
    process = child(folder)
    assert process.wait(30) == 0
    assert (folder / "ended").exists()


def journal(folder: Path) -> list[Event]:
    """What the child stored."""
    store = open_sqlite(folder / "sayso.db")
    try:
        return [decode_event(row) for row in store.sessions.journal(SESSION)]
    finally:
        store.close()


def asked(folder: Path) -> Counter[str]:
    """How often a person was asked about each node."""
    prompts = dict(line.split()[:2] for line in counted(folder / "asked"))
    return Counter(prompts.values())


POINTS = [f"{when}:{commit}" for when in ("before", "after") for commit in range(1, 6)]


@pytest.mark.parametrize("point", sampled(POINTS, ["after:1", "before:3", "after:3", "after:5"]))
def test_killed_at_any_commit_no_completed_node_runs_again(point: str, tmp_path: Path) -> None:
    """At whichever commit the process dies, every completed node has exactly one effect, and the flow ends."""
    log = prepare(tmp_path, FLOW, "on_crash: again,", "again")
    process = child(tmp_path, point)
    process.wait(30)
    done = (
        [event.path for event in journal(tmp_path) if event.type == "node:completed"]
        if stored(tmp_path)
        else []
    )
    finish(tmp_path)
    events = journal(tmp_path)
    assert derive_state(events).status == "complete"
    check_starts(events)
    after, words = Counter(counted(log)), {"one": "one", "two": "two", "three": "go on"}
    for node, word in words.items():
        starts = sum(event.type == "node:started" and event.path == node for event in events)
        assert 1 <= after[word] <= (1 if node in done else starts)
    assert [event.type for event in events].count("prompt:answered") == 1


def stored(folder: Path) -> bool:
    """Whether the child got as far as a session."""
    store = open_sqlite(folder / "sayso.db")
    try:
        return store.sessions.head(SESSION) is not None
    finally:
        store.close()


@pytest.mark.parametrize("point", sampled(POINTS, ["before:2", "after:2", "after:4"]))
def test_killed_at_any_commit_what_asks_never_starts_twice_unasked(point: str, tmp_path: Path) -> None:
    """With `on_crash: ask` (the default of shell), a node starts again only after a person said so."""
    log = prepare(tmp_path, FLOW, "", "again")
    process = child(tmp_path, point)
    process.wait(30)
    finish(tmp_path)
    starts = Counter(event.path for event in journal(tmp_path) if event.type == "node:started")
    questions = asked(tmp_path)
    for node, word in {"one": "one", "two": "two", "three": "go on"}.items():
        assert starts[node] == 1 + questions[node]
        assert 1 <= Counter(counted(log))[word] <= starts[node]


def test_killed_again_and_again_it_still_ends(tmp_path: Path) -> None:
    """A process that dies at each of its second commits gets a little further every time."""
    log = prepare(tmp_path, FLOW, "", "done")
    for _ in range(30):
        process = child(tmp_path, "after:2")
        process.wait(30)
        if (tmp_path / "ended").exists():
            break
    assert (tmp_path / "ended").read_text() == "complete"
    assert max(Counter(counted(log)).values(), default=0) <= 1, "`done` never runs a node again"
    starts = Counter(event.path for event in journal(tmp_path) if event.type == "node:started")
    assert set(starts.values()) == {1}


async def test_killed_while_a_node_works_a_person_decides(tmp_path: Path) -> None:
    """The program outlives us or not, nobody knows: it is asked about, and `done` does not start it again."""
    log = prepare(tmp_path, SLOW, "", "done")
    process = child(tmp_path)
    await until(lambda: counted(log) == ["begun"])
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    assert list(derive_state(journal(tmp_path)).launched) == ["slow"]
    (tmp_path / "gate").touch()
    finish(tmp_path)
    assert counted(log).count("begun") == 1
    assert asked(tmp_path) == {"slow": 1}


async def test_three_kills_of_a_safe_node_are_asked_about(tmp_path: Path) -> None:
    """A node that is safe to repeat runs again after each of two crashes; after the third one a person is asked."""
    log = prepare(tmp_path, SLOW, "on_crash: again", "done")
    for round_ in (1, 2, 3):
        process = child(tmp_path)
        await until(lambda round_=round_: counted(log).count("begun") == round_)  # type: ignore[misc]  # bound here
        assert asked(tmp_path) == {}
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    finish(tmp_path)
    assert counted(log).count("begun") == 3
    assert asked(tmp_path) == {"slow": 1}
    (tmp_path / "gate").touch()
