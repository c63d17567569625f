"""What runs nodes: programs, requests, functions, files, MCP servers; secrets, and redaction.

May import: `journal` and below.

Invariants:

* A runner raises nothing but `CancelledError`; it returns an outcome.
* Secrets become values at the last moment, and are taken out of everything that comes back.
* What is launched is in the journal before it starts.

A crash: A start whose outcome is not journaled is an unknown effect: people are asked, or it runs again
with the same idempotency key.
"""
