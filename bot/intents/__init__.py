"""From a step's events to the outbox rows that show it.

May import: `rendering`.

Theory
------
A row describes what people should see, under a key made of the session and the thing. The rows are committed with their
events, so the display and the truth cannot diverge. Rows of a thread share a lane and are sent in order. What only
changes, as a session's card and its questions, is a *slot*: one row that is replaced, so people see only its last
state.

Invariants
----------
* A projection: the same events give the same rows, with the same idempotency keys.
* A row says what to show, not how it looks: it is drawn when it is sent, from the state of that moment.

Effects of a crash: the rows are committed with the step, or not at all.
"""
