"""The engine runs flows. It knows no Slack, no HTTP server and no terminal.

Theory
------
A *session* is one execution of a flow. All that ever happened in it is its journal: an append-only list
of events. Its state is the fold of those events and never anything else.

Three pure verbs carry the engine; none of them touches a clock, a random source, a file or a socket:

* ``decide(flow, state, command, facts) -> events`` says what a command makes true;
* ``evolve(state, event) -> state`` is the fold;
* ``due(flow, state) -> work`` says what may start now, from the state and not from the last event.

The shell around them (``engine.run.engine``, ``engine.run.stepper``) performs what is due and decides nothing.
One step is: outcome → ``decide`` → ``due`` → ``decide(Begin)`` → one commit → launch.

Invariants
----------
* An event is durable before anything that follows from it is done, shown or acknowledged.
* A node that completed never runs again. A start is durable before its work.
* Every write carries the epoch under which the session was claimed: whoever lost the claim cannot write.

What a crash does: nothing special. The next claim loads the snapshot and the tail of the journal, folds,
records starts of earlier epochs as interrupted, and asks ``due``: the same path as normal running.
"""
