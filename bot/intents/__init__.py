"""From a step's events to the outbox rows that show it.

May import: `rendering`.

Invariants:

* A projection: the same events give the same rows, with the same idempotency keys.

A crash: The rows are committed with the step, or not there.
"""
