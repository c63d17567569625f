"""Where sessions are kept: one class (`engine.storage.store.Store`), on SQLite (a file, or memory) or Postgres.

May import: `journal` and below.

Two transactions carry everything: *ingest* (what came from outside, under a key that is unique) and *commit* (a
session's events with all that follows from them). `group_commit.Writer` runs a store on one thread and lets sessions
that are ready together share a transaction.

Invariants:

* A commit names the epoch and seq that it builds on, and changes nothing when either has moved.
* Every row carries a MAC and is verified before anything parses it; the journal is a chain, the snapshot a cache of its
  fold.

A crash: A transaction that returned is there, any other is gone as a whole. The lock that made the process an owner is
dropped by the kernel or the server, so another may claim its sessions at once, and raises their epoch.
"""
