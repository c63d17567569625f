"""A conversation with a model as values: blocks, turns, the stream's fold, prices and limits.

May import: `language`.

Invariants:

* Content is given back as it came: thinking with its signature, keys of tool inputs in their order.
* A turn without a stop reason is a failure, never a short answer.
* Costs are exact: whole billionths of a dollar, rounded up.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.
"""
