"""Where sessions are kept: one port (`engine.storage.port`), and SQLite (a file, or memory) or Postgres behind it.

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

Files:

* `backoff`: what a store refuses for now is tried again, later each time
* `blobs`: bytes by their digest in a bucket or a shared folder: files of sessions
* `connection`: SQLite behind `database`: one connection with the settings that durability needs, and its errors in our words
* `copying`: all rows of a store in another one, under its keys
* `counts`: how much there is of what waits, for metrics
* `database`: statements and transactions, as the parts of a store use them
* `envelopes`: encrypted files
* `erasing`: erases what sessions held, and what names a person
* `fence`: whether a process that may have been taken for dead may still have effects
* `flows`: texts of flows that sessions pin
* `freshness`: whether a database is as new as what it acknowledged; the anchor beside it
* `group_commit`: the one thread that writes
* `kept`: what outlives its session: notes of agents
* `leases`: which processes live, and which one serves a database
* `deletion`: deletes sessions that have ended, in transactions of milliseconds
* `locks`: queues for locks, and what model calls cost
* `open`: from a URL to a store; SQLite without files
* `packing`: how large values stand in rows: deflated with a dictionary of what events say
* `port`: what every backend does
* `postgres`: opens a database on a server
* `postgres_connect`: connecting to a server; what is said of it holds no secret
* `postgres_connection`: Postgres behind `database`: one connection, and its errors in our words
* `postgres_leases`: leases that a server ends
* `postgres_words`: from SQLite's words to those of Postgres
* `private_files`: the database's files: private, and refused when somebody else could have made them
* `rows`: inbox, prompts, timers, outbox and marks
* `schema`: the tables, and the migrations of an SQLite file
* `sealing`: heads and journals as they are stored; MACs over rows
* `sessions`: heads, journals, snapshots, pinned flows, quarantine
* `sqlite`: opens a database; whole copies of it; the key with which its rows are signed
* `store`: what every store on a database does beside its rows
* `tables`: what a record is in SQL, and how it is read and written
* `vault`: data keys, and what is encrypted with them
"""
