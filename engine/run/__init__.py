"""The shell around the core: it claims sessions, commits steps, launches what is due, and hands commands in.

May import: everything in `engine`.

Invariants:

* Nothing is launched before its COMMIT has returned.
* Claim, load, fold, `due`: the only way back after a crash.
* Wake-ups may be lost, late or doubled; the sweep finds everything.

A crash: Memory is dropped, and nothing else: journal, snapshot and rows say all.

Files:

* `active`: A session that a process works for, what is remembered of others, and what a step's extensions
  and subscribers are
* `clock_watch`: whether the machine's clock may decide what is over: one that jumped forward is looked at
  twice
* `dispatcher`: serves the sessions of a store: takes up what a crash left, fires timers, and hands inbox
  rows to their handlers
* `engine`: what can be asked of the sessions of one store: start, resume, pause, end, look, fork, go on
  elsewhere
* `executor`: the nodes that a process runs: they are started, told to leave, heard on their way, and their
  outcomes handed on
* `export`: sessions that travel as files: checking one, and bringing its session into a store that does not
  have it
* `failures`: failures of inbox rows: which of them are counted, and when a row becomes a dead letter
* `hub`: the face of one session: its status, its events, and what can be asked of it
* `job`: the work of one node: what its runner gets, and what its outcome means to the core
* `remote_commands`: requests for a session that travel through the inbox: from the CLI to the process that
  owns the session, and from whoever showed a prompt or delivered a message
* `sessions`: what a process has of a store's sessions: it looks at them, claims them, remembers the last
  few, gives them up
* `snapshot_files`: the snapshot directory (`SAYSO_SNAPSHOT_DIR`): one file for each paused session, whole
  or not there
* `stepper`: the shell around the pure core: it performs what is due, and decides nothing
* `wakeups`: wake-ups, never truth: something may have become ready
"""
