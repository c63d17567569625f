"""Settings, the library of flows, and the folders of sessions.

May import: `engine`.

Invariants:

* A setting that cannot be used is refused at the start, by name, with a remedy.

A crash: Read again.

Files:

* `library`: the flows that are served: every file of a folder, known by the name in `flow:`, reloaded when
  it changes
* `session_files`: the files of sessions: each session has one folder of its own, and nothing is read or
  written outside of it
* `settings`: settings of a process: from the environment, and from `.env` for what the environment does not
  say
"""
