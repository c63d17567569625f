"""The core: from a command and the state to the events that follow from it.

May import: `journal` and below, but not `decide.agents`.

Theory
------
A *step* begins with one command: a start, an answer, the outcome of a node, a timer, the end. `decide` writes what
the command makes true, and each event is folded at once, so that the next line of code sees the state after it.
Then the *fixpoint* writes everything that follows without any further command: passes of containers end, edges are
resolved, interrupted nodes are asked about, and finally the session pauses or ends. A step has reached its fixpoint
when writing again would write nothing.

`due` reads from the state alone which nodes may start now. A second call of `decide`, with the command `Begin`,
writes that they began; only the shell launches them, after the commit. So a process that dies between the two
leaves events that say what was meant to run, and the next process comes to the same `due`.

Kinds of nodes that hold children (containers and agents) are in one table, `decide.agents.kinds.KINDS`, which is
handed in with a step: the core asks an object of the table what a child's end means, and names no kind. `past`
gives the events with which a session continues under another text, or in a new session.

Invariants
----------
* `decide` is a pure function: time, ids, chance and configuration are arguments (`Facts`).
* Every event passes its own guards and the fold before anybody sees it. A command that may not happen raises, and
  leaves no event.
* An expression is evaluated once; its value is journaled, and a repetition reads it from there.
* Only what people were shown may run: an approval keeps what it covers, and the node is compared with that first.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.
"""
