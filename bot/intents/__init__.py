"""From a step's events to the outbox rows that show it.

May import: `rendering`.

Theory
------
A row describes what people should see, under a key made of the session, the thing and its version. The rows are
committed with their events, so the display and the truth cannot diverge. Rows of a thread share a lane and are sent in
order. A session's card is one row that is replaced: people see only its last state.

Invariants
----------
* A projection: the same events give the same rows, with the same idempotency keys.
* A row says what to show, not how it looks: it is drawn when it is sent, from the state of that moment.

Effects of a crash: the rows are committed with the step, or not at all.
"""
