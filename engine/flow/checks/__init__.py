"""Checks of a flow before it runs: each reports all its faults, located, with a remedy.

May import: the rest of `flow`.

Invariants:

* A check never executes, imports, fetches or evaluates anything.
* Errors use the terms of flows, never those of Python.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.
"""
