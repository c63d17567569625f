"""The core: from a command and the state to the events that follow from it.

May import: `journal` and below.

Invariants:

* `decide` is a pure function: the time, ids, chance and configuration come in as facts.
* What is decided passes the grammar and the fold before anybody sees it.
* An expression is evaluated once; what it gave is journaled.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `approvals`: what people do to a prompt beside answering it: vote, change what is proposed, hand over,
  take back
* `begin`: what is due begins: conditions, configurations, limits, and what each kind of node does first
* `commands`: what can be asked of a session: the commands that `decide` takes
* `containers`: containers as state: `foreach`, `loop`, `parallel`, `switch`, `flow`
* `decide`: `decide`: what a command makes true
* `due`: `due`: what may start now, and what keeps the rest from it
* `edges`: graphs and jumps: which edges of a pass are taken, what may start because of it, and where a jump
  leads
* `fixpoint`: how a turn ends: what follows without any further command is written, to the pause and the end
* `fork`: A session from the past of another one
* `limits`: limits of loops and loop edges: the errors they give, and the question about one that is used
  up; locks: one session at a time goes on under a name
* `migration`: whether a paused session can go on with another text of its flow, and what that changes in
  its state
* `policy`: `authorize(actor, action, target)`: who may do what; it refuses whatever it does not know; whom
  an entry of `approvers` and `who` means; what the policy reads of a session and its prompt
* `preview`: what a node is about to do, in words that a person can check before it does: the text of an
  approval that covers it
* `projections`: what the engine itself writes beside a step's events: timers as they stand, and deliveries
  to be made
* `prompt_timers`: the clocks of a session: of its questions (deadline, reminders, escalation), and of a
  thread out of reach
* `question`: prompts and their answers, as values: what a prompt says, what counts as an answer, and the
  output it gives; what the decision on an approval does to its node; approvals that cover a node: what is
  shown is what runs
* `reinstalled`: nodes that waited for their type, once it is there again
* `replies`: what people and time do to a session: answers, messages, presses, deadlines, the end
* `step`: one call of `decide`: the events that it writes and the state after them; what expressions see at
  a place in a session, and a node's configuration and condition evaluated there
* `verify`: what only the flow's text knows of a history: its nodes, lists, edges, types and time limits
* `agents/`: Agents: conversations with a model as part of a flow
"""
