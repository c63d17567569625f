"""The grammar of histories: which event can follow in which state. Pure.

`decide` folds each event that it writes, and the fold asks these rules about each event that it reads: what is written
and what is believed is one and the same. So a journal in which an event is missing, stands twice, at another place, or
under another name, number or path is refused at the first event that cannot follow, with the reason.

Three things make a history:

* **The table** (`engine.journal.transitions`): which types of events there are in which phase.
* **The rules** (`session`, `nodes`, `containers`, `prompts`): what an event says of its place has to be what
  the state says of it. Ids, indexes, attempts, scopes and counts follow from what came before, and are compared.
* **What is owed** (`OWES` in `common`): some events are followed by others in the same step. An answer is followed by the outcome
  of its node, a question that is shown by its deadline. Until all of that is there, nothing else can follow.

Each rule costs the same however long the history is, but for those of a pause and of the end, which look at all that is
open. What only the flow's text knows (that a list has no further node, what a node's type is) is not asked here, since
sessions outlive texts; `sayso verify` asks it too (`engine.decide.verify`). A session that was forked begins with a part of another
one's history: what a fork leaves out is allowed to be missing there.

Files:

* `common`: what the rules share: places, ids, and what is owed
* `containers`: graphs, jumps, containers, and conversations with models
* `nodes`: what happens to nodes
* `prompts`: questions for people, and timers
* `session`: the session as a whole: its start, pauses, lock, messages and end
"""
