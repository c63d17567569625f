"""The shell around the core: it claims sessions, commits steps, launches what is due, and hands commands in.

May import: everything in `engine`.

Invariants:

* Nothing is launched before its COMMIT has returned.
* Claim, load, fold, `due`: the only way back after a crash.
* Wake-ups may be lost, late or doubled; the sweep finds everything.

A crash: Memory is dropped, and nothing else: journal, snapshot and rows say all.

Files:

* `clock_watch`: whether the machine's clock may decide what is over: one that jumped forward is looked at
  twice
* `dispatcher`: serves the sessions of a store: claims what a crash left, fires timers, and hands inbox rows
  to their handlers; wake-ups, never truth: something may have become ready; failures of inbox rows: which
  of them are counted, and when a row becomes a dead letter
* `engine`: sessions, stepper and executor put together, and the commands for them: start, resume, pause, end,
  look, fork, go on elsewhere
* `executor`: runs the begun nodes of a process: starts them, tells them to leave, hands their outcomes on;
  a session that a process works for, what is cached of a released one, and what a step's extensions and
  subscribers are; the work of one node: what its runner gets, and what its outcome means to the core
* `export`: sessions that travel as files: checking one, and bringing its session into a store that does not
  have it
* `frontend`: what shows questions and messages to people, and the loop that calls it; the lease to serve,
  as a runtime has it
* `hub`: the face of one session: its status, its events, and what can be asked of it
* `remote_commands`: requests for a session that travel through the inbox: from the CLI to the process that
  owns the session, and from whoever showed a prompt or delivered a message
* `runtime`: a program's own sayso: a store, an engine over it, and all that keeps its sessions going; the
  MCP servers of an engine, loaded by the first agent that has one of their tools
* `session`: one session of a runtime: how it stands, what it asks, and what can be said to it
* `sessions`: the sessions of a store as one process has them: read, claimed, cached, quarantined
* `snapshot_files`: the snapshot directory (`SAYSO_SNAPSHOT_DIR`): one file for each paused session, whole
  or not there
* `stepper`: takes steps: decide, commit, launch
"""
