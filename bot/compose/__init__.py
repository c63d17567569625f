"""From settings to an engine and to what a bot consists of.

May import: `intents` and below.

Invariants:

* What is put together here is all that differs between production, the local workspace and tests.

A crash: Nothing of its own.

Files:

* `environment`: the machine, an engine, node types of installed packages, and who answers agents
* `lacks`: what a flow refers to and this installation lacks
* `listening`: HTTP servers: a cap on connections, and a time for headers
* `projections`: timers, locks, prompts and intents compared with the journal, and written anew
* `retention`: deletes what nobody needs any more: sessions and their files after their time, or by name
* `spans`: spans of OpenTelemetry, derived from committed events
* `suspension`: what people are told of a suspended store, and how it is released
* `telemetry`: sends them (`[otel]`), from a bounded queue
"""
