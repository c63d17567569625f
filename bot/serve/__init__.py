"""The bot as a process: what listens to Slack, the parts that serve, and `sayso dev`.

May import: `handlers` and below.

Invariants:

* It drains when it is told to stop: what runs is finished or recorded as interrupted.

A crash: The next process takes up what this one held.
"""
