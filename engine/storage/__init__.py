"""Where sessions are kept: one port (`engine.storage.port`), and SQLite behind it, in a file or in memory.

May import: `journal` and below.

Two transactions carry everything: *ingest* (what came from outside, under a key that is unique) and *commit* (a
session's events with all that follows from them). `group_commit.Writer` runs a store on one thread and lets sessions
that are ready together share a transaction.

Invariants:

* A commit names the epoch and seq that it builds on, and changes nothing when either has moved.
* Every row carries a MAC and is verified before anything parses it; the journal is a chain, the snapshot a cache of its
  fold.

A crash: A transaction that returned is there, any other is gone as a whole. The lock that made the process an owner is
dropped by the kernel, so another may claim its sessions at once, and raises their epoch.

Files:

* `backoff`: what a store refuses for now is tried again, later each time
* `connection`: one SQLite connection with the settings that durability needs, and SQLite's errors in our words
* `freshness`: whether a database is as new as what it acknowledged, and holds what was committed; the file
  beside a database that says how new it must at least be
* `group_commit`: the one thread that writes
* `open`: from a URL to a store; the SQLite backend without files
* `port`: what every backend does
* `private_files`: the database's files: private, and refused when somebody else could have made them
* `leases`: which processes live: one locked file per owner; the lease to serve a database: one process at a
  time holds it
* `sealing`: the heads and journals of sessions as they are stored; MACs over rows
* `sqlite`: opens a database; the store itself, put together from its tables; whole copies of a database:
  made while it is served, and put back; the key with which rows are signed
* `sqlite_locks`: queues for locks, and what model calls cost
* `sqlite_rows`: inbox, prompts, timers, outbox and marks
* `sqlite_sessions`: heads, journals, snapshots, pinned flows, quarantine
* `tables`: what a record is in SQL, and the transactions in which it is read and written; the DDL, and how
  a database of an older release becomes one of this release
"""
