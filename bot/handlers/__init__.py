"""From a row of the inbox to a command of the engine, or to words.

May import: `start` and below.

Invariants:

* A row is consumed in the commit that it caused.
* A row that keeps failing is a dead letter; those behind it go on.

A crash: Rows that were not consumed are handled again.

Files:

* `catchup`: reads what was said while nobody listened: after a start and after any gap
* `channel_changes`: what happens to channels and to messages of ours: archived, left, back again, deleted
* `clicks`: what is done with presses in messages: options, controls, Undo, the end of a session, and which
  question was meant
* `control_words`: what control words do to the sessions of a thread
* `dead_letters`: what people are told of what was set aside: a row that could not be handled, a session
  that does not verify
* `edits`: what is done when people edit what they wrote: nothing, and they are told so where it matters
* `steering`: who may speak to an agent that is under way
* `text_messages`: what is done with what people said and pressed: inbox rows → engine commands, and words
  where nothing is done
"""
