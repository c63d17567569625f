"""From a payload of Slack to what it asks for: plain functions.

May import: `wire` and below.

Theory
------
Slack delivers at least once, and gives us three seconds. So a payload becomes a value (`decisions`: take it, ask
something, skip it, ...) without any look-up, gets a key that is the same for each delivery, and is committed to the
inbox before it is acknowledged. What a stored payload means is asked later, by the handlers: `meaning.understand` says it,
given the situation, or names the part of the situation that it needs to know (who somebody is, what a thread waits for).

Invariants
----------
* What is not persisted is not acknowledged: Slack sends it again.
* A payload of a wrong shape is counted and acknowledged, and nothing else.

What a crash does
-----------------
A payload without an acknowledgement comes again; its idempotency key knows it.
"""
