"""Settings, the library of flows, and the folders of sessions.

May import: `engine`.

Invariants:

* A setting that cannot be used is refused at the start, by name, with a remedy.

A crash: Read again.

Files:

* `directory`: people as data: managers, timezones, rotas
* `library`: the flows that are served, by the name in `flow:`, reloaded when a file changes
* `logs`: logs as text or JSON lines, each part at its own level
* `ownership`: whose a file is, before it is used although nobody named it
* `profiles`: how people want to be told, and who answers while they are away
* `revision`: which commit or release a folder of flows holds
* `session_files`: one folder for each session; nothing is read or written outside of it
* `settings`: settings of a process, from the environment and from `.env`
* `tuning`: how the outbox waits
"""
