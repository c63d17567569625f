"""Storage of sessions: a store and its parts (`engine.storage.store.Store`), on SQLite (a file, or memory) or Postgres.

May import: `journal` and below.

Theory
------
Two transactions carry everything. *Ingest* keeps input from outside under a unique key, so that a second delivery
changes nothing. *Commit* keeps a session's events with everything that follows from them.

*Group commit.* A commit waits for the disk, and the event loop must not. `group_commit.Writer` runs the store on one
thread. All commits that are queued when the thread comes around share one transaction, and so one wait for the disk. A
waiter is notified only after COMMIT has returned; cancelling a waiter undoes nothing.

*Leases.* An owner proves that it is alive by a lock that the kernel or the server holds for it, and that is dropped
when the process ends in any way. No clock decides who is dead if the lock alone can.

*Seals.* Every row carries a MAC and is verified before anything parses it. The journal is a chain: each MAC includes
the one before it, so an event cannot be removed, moved or replaced. A snapshot is a cache of the fold. A counter in a
small file beside the database (the anchor) reveals that an older copy was put back.

Invariants
----------
* A commit names the epoch and the sequence number that it builds on, and changes nothing when either has moved.
* Both dialects pass the same suite of tests; a fault found in one becomes a test of both.
* Data that cannot be verified is an error with the session's name, never a default.

Effects of a crash
------------------
A transaction that returned is stored, any other is gone as a whole. The dead owner's lock is dropped, so another
process may claim its sessions at once, and raises their epoch.
"""
