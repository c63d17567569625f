"""Checks of an installation.

May import: `compose` and below.

Invariants:

* A check changes nothing.
* A finding says what is wrong, and what to do.

A crash: It is run again.

Files:

* `agents`: checks for flows with agents, and of what is stored
* `blobs`: where files of sessions are kept for all machines
* `checks`: the checks of an installation, each with what it found and what to do
* `encryption`: what of a database is encrypted, and under which keys
* `findings`: what a check found
* `fleet`: the processes that serve a database on a server, and what waits for them
* `manifest`: the app's manifest against what the app and its flows need
* `slack`: checks against Slack: each kind of conversation can be read, and what flows name is there
"""
