"""The journal: events, the fold that makes the state of them, and the records that a commit carries.

May import: `flow` and below.

Invariants:

* The state is the fold of the events, and comes to be in no other way.
* An event that the table of transitions or the grammar does not allow is a failed fold, not a guess.
* Names and fields on the wire are ours for ever; golden histories are read byte for byte.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `audit`: the audit trail: who was asked, who decided, what ran, as records
* `events`: facts of a session, in the past tense: a closed union, tagged by wire names that we own
* `fold`: `evolve`: the only way in which a state comes to be
* `folds/`: the fold, by what the events are about
* `grammar`: which event can follow in which state
* `history`: a session as a tree, finished passes too
* `queries`: what a state says about places in it, and about code that changed
* `records`: the records of the store: what a commit carries, and what is read back
* `snapshot`: the state as one JSON document, and the file of a paused or exported session
* `state`: the state of a session, as values
* `transitions`: the session's state machine: a table
"""
