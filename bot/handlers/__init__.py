"""From a row of the inbox to a command of the engine, or to a reply.

May import: `start` and below.

Theory
------
A row of the inbox is a message, a click or a submission that was acknowledged to Slack. Its handler looks up the person
and the meaning, and either gives one command to the session, or explains in one message why nothing happens. The row is
consumed in the commit that the command makes, so a row has its effect exactly once, however often it is handled. Rows
of one thread are handled in order.

Invariants
----------
* A row is consumed in the commit that it caused.
* A row that keeps failing is a dead letter; those behind it continue.

Effects of a crash: rows that were not consumed are handled again.
"""
