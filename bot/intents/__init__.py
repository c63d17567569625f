"""From a step's events to the outbox rows that show it.

May import: `rendering`.

Theory
------
A row says what people should see, under a key that is made of the session, the thing and its version. The rows are
committed with the events that they follow from, so what is shown and what is true cannot part. Rows of a thread
share a lane and are sent in their order. A session's card is one row that is replaced: people see its last state
only.

Invariants
----------
* A projection: the same events give the same rows, with the same idempotency keys.
* A row says what to show, not how it looks: it is drawn when it is sent, from the state of that moment.

What a crash does
-----------------
The rows are committed with the step, or not there.
"""
