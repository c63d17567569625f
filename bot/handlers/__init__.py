"""From a row of the inbox to a command of the engine, or to words.

May import: `start` and below.

Invariants:

* A row is consumed in the commit that it caused.
* A row that keeps failing is a dead letter; those behind it go on.

A crash: Rows that were not consumed are handled again.
"""
