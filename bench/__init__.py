"""How fast sayso is, in one run on one machine: `make bench`.

Theory. Absolute times say little on a machine that others use too, so everything that waits for the disk is measured
against a *floor*: one durable commit of the same bytes with plain SQLite, in the same process and folder, right
before and after. What is a whole process is measured against a Python that does nothing. Ratios and medians are
what to compare between machines; the aims in milliseconds are what people notice.

Each module measures one thing and gives rows for one table (`report`). Nothing is simulated but people and Slack:
the store is the real one with its fsync, the bot is a real process, Slack is the local workspace.
"""
