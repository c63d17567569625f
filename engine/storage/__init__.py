"""Where sessions are kept: one port (`engine.storage.port`), several backends, one contract suite for all.

Two transactions carry everything: *ingest* (what came from outside, under a key that is unique) and *commit* (a
session's events with all that follows from them). `writer.Writer` runs a store on one thread and lets sessions
that are ready together share a transaction. Invariants: a commit names the epoch and seq that it builds on and
changes nothing when either has moved; every row carries a MAC and is verified before anything parses it; the
journal is a chain, the snapshot a cache of its fold.

What a crash does: a transaction that returned is there, any other is gone as a whole. The lock that made the
process an owner is dropped by the kernel, so another may claim its sessions at once, and raises their epoch.
"""
