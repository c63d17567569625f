"""The journal: events, the fold that derives the state from them, and the records that a commit carries.

May import: `flow` and below.

Theory
------
A session is its journal, an append-only list of facts. Its state is a fold: `evolve(state, event)` from the first event
to the last. Nothing else is kept between two processes, so everything that decides how a session continues must be an
event, and every other record (open questions, timers, locks, intents, snapshots) can be rebuilt from the events.

An event carries its rules in its class: the session phases in which it can happen (the table of transitions is built
from that), its `fold` with the guards that refuse an impossible event, and what it `owes`: the events that must follow
in the same step. A history that a correct session could not have written is therefore refused at the first wrong event,
by number.

A *snapshot* is the state after some event. Each commit that leaves the session paused writes one, and so does a running
session whenever the events since the last one have grown long. Loading means the snapshot plus the events after it,
which are normally none. It is a cache: if it is missing or damaged, the whole journal is folded, and that is reported
once.

Invariants
----------
* The state is the fold of the events, or of a snapshot and the events after it.
* An event that its phases or its guards do not allow is a failed fold, not a guess.
* `fold(all) == fold(snapshot + tail)`, and `decode(encode(event)) == event`.
* Names and fields on the wire are permanent; golden histories are read byte for byte.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.
"""
