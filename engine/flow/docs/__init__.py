"""Generated documents about flows: the JSON Schema for editors, and diagrams.

May import: the rest of `flow`.

Invariants:

* Made from the models of the loader, so that they always agree with it.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.
"""
