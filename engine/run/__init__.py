"""The shell around the core: it claims sessions, commits steps, launches what is due, and hands commands in.

May import: everything in `engine`.

Theory
------
*Claims.* A session belongs to one process at a time. The claim is stored by the commit of the first step and raises
the session's *epoch*; each later commit names the epoch and the sequence number that it builds on, and changes
nothing if either has moved. A process that lost its claim, or was frozen while another one took over, therefore
cannot write. A session that nothing works for is released and dropped from memory: a paused session costs none.

*Steps.* Load, decide, commit, launch, in this order (`stepper`). One commit holds the events, the row of the inbox
that caused them, and every row that follows from them. Nothing is launched, shown or acknowledged before that
commit has returned. A commit that was refused leaves a state in memory that nobody believes: the session is loaded
again.

*Fences.* Records are fenced by the epoch, but a program, a request or a message has none. A process asks the fence
right before such an effect, without I/O: is its lease fresh, and was there no gap in its signs of life since the
work began?

*Wake-ups and sweeps.* The dispatcher hears of new rows, of timers and of outcomes by wake-ups. A wake-up may be
lost, late or doubled, since a sweep looks for work regularly and finds all of it.

Invariants
----------
* Nothing is launched before its COMMIT has returned.
* Claim, load, fold, `due`: the only way back after a crash, and the way of every normal load as well.
* Rows with the same ordering key are handled one after the other, others side by side.
* A session whose records do not verify is set aside and told. Nothing is guessed.

What a crash does
-----------------
Memory is dropped, and nothing else: journal, snapshot and rows say all. What was running has no outcome that
anybody knows; `on_crash` of the node says whether it runs again with the same idempotency key, or people are asked.
"""
