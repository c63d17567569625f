"""A session at a terminal: questions, narration, and what is shown of it.

May import: `compose` and below.

Invariants:

* Whatever comes from flows, people or programs is cleaned before a terminal sees it.

A crash: It leaves; the session stays where it is.

Files:

* `console`: what every command has: its settings, exit codes, text for people and JSON for machines
* `follow`: follows a session, and says how it ended or what it waits for
* `follower`: one session at the terminal, until it ends or waits for somebody who is not here
* `frontend`: the terminal as a frontend: questions, messages, forms line by line
* `lists`: sessions, dead letters and spending as rows, for people and machines
* `narration`: what happens in a session, as lines of text
* `screen`: lines, a spinner while something works, and lines that are typed
* `show`: one session as lines: where it stands, its tree, what it waits for
"""
