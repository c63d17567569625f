"""Faces: what a question says, as values that Slack, a terminal and documents each write in their own form.

May import: `prompt_state` and `engine`.

Theory
------
A question (an approval, a form, a choice, a call of an agent) is shown in a thread, on the Home, at terminals, in the
control room and to programs. What it says there follows from the question, and from a few facts that only its session
and flow know (`question.Scene`). `question.face` is the only function that decides it: the people asked, the proposal,
the votes, the deadline with its effect, the ways to answer, the outcome. A writer chooses the parts for which it has
room, and gives people, times and others' text the form of its place.

Invariants
----------
* Nothing of Slack: people are actors and entries, times are UTC, text of others is not escaped yet.
* A part that is our own text may have `*bold*` and `code`; all other text is a `Said`.
"""
