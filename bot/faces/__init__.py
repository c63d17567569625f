"""Faces: what a question, a run and a bad end say, as values that each place writes in its own form.

May import: `prompt_state` and `engine`.

Theory
------
A question (an approval, a form, a choice, a call of an agent) is shown in a thread, on the Home, at terminals, in the
control room and to programs. What it says there follows from the question, and from a few facts that only its session
and flow know (`question.Scene`). `question.face` is the only function that decides it: the people asked, the proposal,
the votes, the deadline with its effect, the ways to answer, the outcome. Likewise `run.run` decides what the card of a
run says, from its state, its flow and a few facts (`run.Facts`), and `end.end` what is said when it ends badly. A writer
chooses the parts for which it has room, and gives people, times and others' text the form of its place.

Invariants
----------
* Nothing of Slack: people are actors and entries, times are UTC, text of others is not escaped yet.
* A part that is our own text may have `*bold*` and `code`; all other text is a value (`words`).
"""
