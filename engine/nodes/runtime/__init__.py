"""Runners of nodes: programs, requests, functions, files, MCP servers; secrets, and redaction.

May import: `journal` and below.

Theory
------
A runner is an `async` function of an evaluated `with` and a `NodeContext`. It returns a value: done, failed, or
interrupted, which means that its effect is unknown. That distinction is the point of the room: a request that was
refused before it was sent may be tried again; one whose answer was lost may not, unless its type says so.

Secrets are names in a flow and in the journal. They become values where a program or a request is made, and every
output, progress line and error message passes the redactor of that node first.

Invariants
----------
* A runner raises nothing but `CancelledError`; it returns an outcome.
* Work is journaled before it starts.
* Output is bounded while it is read, not afterwards.

Effects of a crash
------------------
A start whose outcome is not journaled is an unknown effect: people are asked, or it runs again with the same
idempotency key.
"""
