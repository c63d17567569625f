"""What is wrong with a flow, before it runs: each check reports all it finds, located, with a remedy.

May import: the rest of `flow`.

Invariants:

* A check never executes, imports, fetches or evaluates anything.
* Errors are in the words of flows, never of Python.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.
"""
