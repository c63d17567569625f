"""Checks of an installation.

May import: `compose` and below.

Invariants:

* A check changes nothing.
* A finding says what is wrong, and what to do.

A crash: It is run again.
"""
