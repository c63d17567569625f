"""The fold, by what the events are about; `engine.journal.fold` puts it together.

May import: the rest of `journal`.

Invariants:

* A fold reads the state and one event, and changes neither.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `agents`: conversations with models: what is said, what tools were asked for and gave, what it used
* `nodes`: nodes, graphs, jumps and containers
* `session`: the session as a whole, questions for people, timers
"""
