"""Settings, the library of flows, and the folders of sessions.

May import: `engine`.

Invariants:

* A setting that cannot be used is refused at the start, by name, with a remedy.

A crash: Read again.
"""
