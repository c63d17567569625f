"""From settings to an engine and to what a bot consists of.

May import: `intents` and below.

Invariants:

* What is put together here is all that differs between production, the local workspace and tests.

A crash: Nothing of its own.

Files:

* `environment`: what the bot has from the machine that it runs on: the time, chance, the disk and the
  network; puts an engine together with what every process of sayso needs; open sessions whose flows use
  node types of installed packages: which of them lack one, and which have it back; who answers the agents
  of a process: Claude, or a script
* `projections`: timers, locks, prompts and intents follow from the journal: compared with it, and written
  anew where they differ
* `retention`: deletes what nobody needs any more: ended sessions after their time, with their files; and
  what people name
* `suspension`: what people are told of a suspended store: the threads of open sessions, `sayso doctor`, and
  `sayso store release`
"""
