"""State of conversation threads: the open prompts, the people who may answer them, and the meaning of a reply.

Theory
------
A waiting session has no process, so everything that a reply needs is in the store. A *PromptState* is one open question
as a thread sees it: keyed by thread, with a pointer to its session and snapshot and to the Slack message that shows it.
There may be any number in a thread; each has its own id.

Invariants
----------
* All of it is plain synchronous functions over values: no clock, randomness, network or log.
* PromptState never says more than the journal: it can be projected again from the session's state at any time.
* Free text never reaches an approval.
* A message older than a prompt never answers it; clock differences do not matter, since both times are Slack's.

Effects of a crash: none. Rows and events are one commit, and a reply that came meanwhile waits in the inbox.
"""
