"""A session at a terminal: questions, narration, and what is shown of it.

May import: `compose` and below.

Invariants:

* Whatever comes from flows, people or programs is cleaned before a terminal sees it.

A crash: It leaves; the session stays where it is.
"""
