"""The languages that flows and journals are written in: expressions, YAML, JSON, times, and errors.

Imports no other room.

Invariants:

* Every value is plain JSON of a bounded size; `codec` is the gate through which all foreign values pass.
* An expression cannot reach Python: the list of filters, tests and syntax is closed.
* Every error has a code, and names the fault, its place and the remedy.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.
"""
