"""The shell around the core: it claims sessions, commits steps, launches what is due, and hands commands in.

May import: everything in `engine`.

Invariants:

* Nothing is launched before its COMMIT has returned.
* Claim, load, fold, `due`: the only way back after a crash. A claim is stored by the commit of the first step, which is
  refused where another process came first.
* Wake-ups may be lost, late or doubled; the sweep finds everything.

A crash: Memory is dropped, and nothing else: journal, snapshot and rows say all.

Files:

* `clock_watch`: whether the machine's clock may decide what is over: a jump forward is looked at twice
* `dispatcher`: serves the sessions of a store: claims, timers, inbox rows; wake-ups and dead letters
* `engine`: sessions, stepper and executor put together, and the commands for them
* `executor`: runs the begun nodes of a process, each a job; what a line of the log is about
* `export`: sessions that travel as files: checking one, and bringing its session into a store
* `failures`: rows of the inbox whose handlers failed, and dead letters
* `flow_files`: flow files: one, or a folder of them, with the flows that they call
* `frontend`: what shows questions and messages to people, the loop that calls it, and its lease
* `hub`: the face of one session: its status, its events, and what can be asked of it
* `memory`: notes that agents keep for later runs, read for a model call and for people
* `remote_commands`: requests for a session that travel through the inbox
* `runtime`: a program's own sayso: a store, an engine over it, and all that keeps its sessions going
* `session`: one session of a runtime: how it stands, what it asks, and what can be said to it
* `sessions`: the sessions of a store as one process has them: read, claimed, cached, quarantined
* `shared_files`: files of sessions on several machines: folders here as copies of blobs
* `shared_lanes`: the inbox of a store that several processes serve
* `snapshot_files`: the snapshot directory (`SAYSO_SNAPSHOT_DIR`): one file for each paused session
* `stored`: a session as it is stored, for whoever only looks
* `stepper`: takes steps: decide, commit, launch
* `supervision`: background tasks: reported and started again when they fail
* `verify`: what only the flow's text knows of a history: its nodes, lists, edges, types and time limits
"""
