"""The bot as a process: what listens to Slack, the parts that serve, and `sayso dev`.

May import: `handlers` and below.

Invariants:

* It drains when it is told to stop: what runs is finished or recorded as interrupted.

A crash: The next process takes up what this one held.

Files:

* `bolt`: the Slack app: Bolt in Socket Mode; persist, then acknowledge
* `chores`: housekeeping, whether the token is accepted, limits that are used up
* `dev`: `sayso dev`: the real bot and a local workspace in one process
* `gaps`: what was said while nobody listened: noticed by one process, read by one, known to all
* `hooks`: webhooks: signed requests that start flows
* `identity`: who the app is, as Slack says: tokens, scopes and names, checked at the start
* `metrics`: metrics for Prometheus, and whether the bot lives and is ready, over HTTP
* `main`: the bot: puts the parts together, serves, and drains when told to stop
* `roles`: this process among those that serve one database: its role, who else lives, who leads
* `understanding`: what makes something of what people say and press, put together
"""
