"""From a row of the inbox to a command of the engine, or to words.

May import: `start` and below.

Theory
------
A row of the inbox is a message, a press or a submission that Slack was told we have. Its handler looks up who that
is and what it means, and either hands one command to the session, or says in one message why nothing happens. The
row is consumed in the commit that the command makes, so a row has its effect exactly once, however often it is
handled. Rows of one thread are handled in their order.

Invariants
----------
* A row is consumed in the commit that it caused.
* A row that keeps failing is a dead letter; those behind it go on.

What a crash does
-----------------
Rows that were not consumed are handled again.
"""
