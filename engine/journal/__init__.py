"""The journal: events, the fold that makes the state of them, and the records that a commit carries.

May import: `flow` and below.

An event is a fact that was written, and its class has all the rules about it: in which phases of the session it can
happen, how it is refused where it cannot follow, what it changes, and what has to follow in the same step.

Invariants:

* The state is the fold of the events, and comes to be in no other way.
* An event that its phases or its rules do not allow is a failed fold, not a guess.
* Names and fields on the wire are ours for ever; golden histories are read byte for byte.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.
"""
