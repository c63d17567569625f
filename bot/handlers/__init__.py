"""From a row of the inbox to a command of the engine, or to words.

May import: `start` and below.

Invariants:

* A row is consumed in the commit that it caused.
* A row that keeps failing is a dead letter; those behind it go on.

A crash: Rows that were not consumed are handled again.

Files:

* `catchup`: reads what was said while nobody listened: after a start and after any gap
* `channel_changes`: what happens to channels and to messages of ours: archived, left, back again, deleted; and what people are told
  of dead letters
* `clicks`: what is done with presses in messages: options, controls, Undo, the end of a session, and which
  question was meant
* `replies`: what people say and press, carried out: one engine command, committed with the row that asked
  for it; edits, which change nothing; what is done with what people say: inbox rows → engine commands,
  control words, and words where nothing is done
"""
