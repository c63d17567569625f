"""The journal: events, the fold that makes the state of them, and the records that a commit carries.

May import: `flow` and below.

Invariants:

* The state is the fold of the events, and comes to be in no other way.
* An event that the table of transitions or the grammar does not allow is a failed fold, not a guess.
* Names and fields on the wire are ours for ever; golden histories are read byte for byte.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `events`: facts of a session, in the past tense: a closed union, tagged by wire names that we own
* `fold`: the fold of a session's journal: `evolve` is the only way in which a state comes to be
* `history`: A session as a tree: every node and every pass that its journal tells of, finished ones too; A
  session as people and programs look at it
* `queries`: what a state says about places in it: what runs, what waits, what is being given up; code that
  a flow runs and does not hold: modules of `python` nodes, programs beside the flow file
* `records`: the records of the store: what a commit carries, and what is read back
* `snapshot`: snapshots: the state at a pause as one JSON document, a cache of the fold and a portable file;
  `SessionState`: the state of a session as one JSON document, and back
* `state`: the state of a session, as values: what folding its events gives (`engine.journal.fold`), and
  never anything else
* `transitions`: the session's state machine: a table
* `folds/`: The fold, by what the events are about; `engine.journal.fold` puts it together
* `grammar/`: The grammar of histories: which event can follow in which state
"""
