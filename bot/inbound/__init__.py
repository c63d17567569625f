"""From a payload of Slack to what it asks for: plain functions.

May import: `wire` and below.

Invariants:

* What is not persisted is not acknowledged: Slack sends it again.
* A payload of a wrong shape is counted and acknowledged, and nothing else.

A crash: A payload without an acknowledgement comes again; its idempotency key knows it.
"""
