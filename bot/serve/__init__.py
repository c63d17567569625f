"""The bot as a process: the connection to Slack, the parts that serve, and `sayso dev`.

May import: `handlers` and below.

Invariants:

* It drains when told to stop: running work is finished or recorded as interrupted.

Effects of a crash: the next process takes up the work of this one.
"""
