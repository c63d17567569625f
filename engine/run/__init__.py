"""The shell around the core: it claims sessions, commits steps, launches what is due, and hands commands in.

May import: everything in `engine`.

Invariants:

* Nothing is launched before its COMMIT has returned.
* Claim, load, fold, `due`: the only way back after a crash. A claim is stored by the commit of the first step, which is
  refused where another process came first.
* Wake-ups may be lost, late or doubled; the sweep finds everything.

A crash: Memory is dropped, and nothing else: journal, snapshot and rows say all.
"""
