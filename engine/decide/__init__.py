"""The core: from a command and the state to the events that follow from it.

May import: `journal` and below.

Invariants:

* `decide` is a pure function: the time, ids, chance and configuration come in as facts.
* What is decided passes the grammar and the fold before anybody sees it.
* An expression is evaluated once; what it gave is journaled.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.
"""
