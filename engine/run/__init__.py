"""The shell around the core: it claims sessions, commits steps, launches due work, and passes commands in.

May import: everything in `engine`.

Theory
------
*Claims.* A session belongs to one process at a time. The claim is stored by the commit of the first step and raises the
session's *epoch*; each later commit names the epoch and the sequence number that it builds on, and changes nothing if
either has moved. A process that lost its claim, or was frozen while another one took over, therefore cannot write. A
session without running work is released and dropped from memory: a paused session costs none.

*Steps.* Load, decide, commit, launch, in this order (`stepper`). One commit holds the events, the row of the inbox that
caused them, and every row that follows from them. Nothing is launched, shown or acknowledged before that commit has
returned. After a refused commit the state in memory is discarded: the session is loaded again.

*Fences.* Records are fenced by the epoch, but a program, a request or a message has none. A process asks the fence
right before such an effect, without I/O: is its lease fresh, and was there no gap in its signs of life since the work
began?

*Wake-ups and sweeps.* Wake-ups tell the dispatcher about new rows, timers and outcomes. A wake-up may be lost, late or
doubled, since a sweep regularly finds all work.

Invariants
----------
* Nothing is launched before its COMMIT has returned.
* Claim, load, fold, `due`: the only way back after a crash, and the way of every normal load as well.
* Rows with the same ordering key are handled one after the other, others side by side.
* A session whose records do not verify is quarantined and reported. Nothing is guessed.

Effects of a crash
------------------
Only memory is lost: journal, snapshot and rows have everything. The outcome of running work is unknown; `on_crash` of
the node decides whether it runs again with the same idempotency key, or people are asked.
"""
