"""The bot as a process: what listens to Slack, the parts that serve, and `sayso dev`.

May import: `handlers` and below.

Invariants:

* It drains when it is told to stop: what runs is finished or recorded as interrupted.

A crash: The next process takes up what this one held.

Files:

* `bolt`: the Slack app: Bolt in Socket Mode, with one rule above all: persist, then acknowledge
* `dev`: `sayso dev`: the real bot and a local workspace that speaks Slack's protocol, in one process
* `main`: the bot as a process: check what can be checked, put the parts together, serve, and drain when
  told to stop
"""
