"""The core: from a command and the state to the events that follow from it.

May import: `journal` and below.

Invariants:

* `covered_nodes`: approvals that cover a node: what was shown is what runs
* `decide` is a pure function: the time, ids, chance and configuration come in as facts.
* What is decided passes the grammar and the fold before anybody sees it.
* An expression is evaluated once; what it gave is journaled.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `agents/`: agents: conversations with a model as part of a flow
* `approvals`: what people do to a prompt beside answering it: vote, change, hand over, revoke
* `begin`: what is due begins: conditions, configurations, limits, and what each kind of node does first
* `commands`: what can be asked of a session: the commands that `decide` takes
* `containers`: containers as state: passes begin, end and fail
* `decide`: `decide`: what a command makes true
* `due`: `due`: what may start now, and what keeps the rest from it
* `edges`: graphs and jumps: which edges are taken, what may start then, where a jump leads
* `fixpoint`: how a step ends: what follows without any further command is written
* `fork`: a session from the past of another one
* `kinds`: `foreach`, `loop`, `parallel`, `switch`, `flow`: what each goes through
* `limits`: limits of loops and loop edges; locks
* `migration`: whether a paused session can go on with another text of its flow
* `outages`: what becomes of a model call that failed
* `policy`: `authorize(actor, action, target)`: who may do what, and whom `approvers` and `who` mean
* `projections`: what the engine itself writes beside a step's events: timers and deliveries
* `prompt_timers`: the clocks of questions, and of a thread out of reach
* `question`: questions and their answers; ends of approvals
* `reinstalled`: nodes that waited for their type, once it is there again
* `replies`: what people and time do to a session: answers, messages, presses, deadlines, the end
* `step`: one call of `decide`: its events and the state after them; what expressions see
"""
