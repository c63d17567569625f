"""A session at a terminal: questions, narration, and what is shown of it.

May import: `compose` and below.

Invariants:

* Whatever comes from flows, people or programs is cleaned before a terminal sees it.

A crash: It leaves; the session stays where it is.

Files:

* `console`: where a command works: the global options, and the settings that they and the environment give;
  exit codes: one table, which `--help` and the documentation show; text for people and JSON for machines
* `follow`: follows a session in this terminal and says how it ended: what `run`, `resume` and `answer` have
  in common; what a session that rests waits for, one by one: `waitsFor` of the JSON that commands print,
  and the lines for people
* `follower`: one session followed at the terminal: it runs here until it ends, or waits for somebody who is
  not here
* `frontend`: A form filled in line by line, as at a terminal: one field after the other, each checked
  before the next
* `narration`: what happens in a session, as lines of text
* `screen`: the terminal as a follower sees it: lines, a spinner while something works, and lines that are
  typed
* `show`: one session as lines for people: where it stands, its tree, and what it waits for on whom
"""
