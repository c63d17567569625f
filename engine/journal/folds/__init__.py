"""The fold, by what the events are about; `engine.journal.fold` puts it together.

May import: the rest of `journal`.

Invariants:

* A fold reads the state and one event, and changes neither.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `agents`: the fold of conversations with models: what is said, what tools were asked for and gave, what it
  used
* `nodes`: the fold of what happens to nodes: starts, outcomes, interruptions, tries; the fold of graphs,
  jumps and containers
* `session`: the fold of what happens to a session as a whole: its start, pauses, locks, messages and end;
  the fold of questions for people and of timers
"""
