"""The journal: events, the fold that makes the state of them, and the records that a commit carries.

May import: `flow` and below.

An event is a fact that was written, and its class has all the rules about it: in which phases of the session it can
happen, how it is refused where it cannot follow, what it changes, and what has to follow in the same step.

Invariants:

* The state is the fold of the events, and comes to be in no other way.
* An event that its phases or its rules do not allow is a failed fold, not a guess.
* Names and fields on the wire are ours for ever; golden histories are read byte for byte.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `agent_runs`: conversations with models in a state: how a call begins, and how what it spends is counted
* `audit`: the audit trail: who was asked, who decided, what ran, as records
* `events/`: facts of a session, in the past tense, each with its rules
* `fold`: `evolve`: the only way in which a state comes to be
* `grammar`: what the rules of events share: comparisons with the state, and ids that follow from it
* `history`: a session as a tree, finished passes too
* `passes`: passes through lists of nodes: how they go on, and how they end
* `phases`: phases of a session, and what they are called outside
* `queries`: what a state says about places in it, and about code that changed
* `records`: the records of the store: what a commit carries, and what is read back
* `snapshot`: the state as one JSON document, and the file of a paused or exported session
* `state`: the state of a session, as values
* `transitions`: the session's state machine: a table that the events make
"""
