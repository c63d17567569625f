"""From settings to an engine and to what a bot consists of.

May import: `intents` and below.

Invariants:

* What is put together here is all that differs between production, the local workspace and tests.

A crash: Nothing of its own.
"""
