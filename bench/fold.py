"""`derive_state`: folding the journal of a long session, from events and from the bytes that are stored."""

from __future__ import annotations

import time
from pathlib import Path

from bench.report import Row, median
from bench.rig import ANA, everybody
from engine.decide.agents.kinds import KINDS
from engine.decide.commands import Begin, Facts, Start
from engine.decide.decide import carry_out
from engine.decide.due import due
from engine.decide.step import Step
from engine.flow.load import load_flow
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.state import State

EVENTS = 100_000
FLOW = """
flow: fold
limits: {{max_node_runs: 100000}}
nodes:
  - id: each
    type: foreach
    with: {{items: "{{{{ range({0}) | list }}}}"}}
    body:
      - {{id: a, type: set, with: {{x: "{{{{ item }}}}"}}}}
      - {{id: b, type: set, with: {{x: "{{{{ nodes.a.x }}}}"}}}}
      - {{id: c, type: noop}}
      - {{id: d, type: noop}}
"""
ITEMS = 10_000


def measure(base: Path, *, quick: bool) -> list[Row]:
    """The rows about the fold."""
    events = _journal(ITEMS // 10 if quick else ITEMS)[:EVENTS]
    stored = [event.to_bytes() for event in events]
    folds, reads = [], []
    for _ in range(3):
        begin = time.perf_counter()
        derive_state(events)
        folded = time.perf_counter()
        derive_state(decode_event(row) for row in stored)
        folds.append(len(events) / (folded - begin))
        reads.append(len(events) / (time.perf_counter() - folded))
    note = f"median of 3 folds of {len(events):,} events of one session"
    return [
        Row("derive_state", median(folds), "events/s", note=note),
        Row("derive_state from stored bytes", median(reads), "events/s"),
    ]


def _journal(items: int) -> list[Event]:
    """The events of a session with nodes that do nothing outside."""
    flow = load_flow(FLOW.format(items), "fold.yml")
    facts = Facts(now="2026-11-21T09:00:00.000Z", epoch=1, entropy="bench", policy=everybody)
    step = Step(flow, State(), facts, KINDS)
    carry_out(step, Start("session-0bench00", {}, ANA))
    while not step.state.ended and due(flow, step.state, KINDS):
        carry_out(step, Begin())
    return step.events
