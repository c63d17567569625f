"""Agents: conversations with a model as part of a flow. What is pure of them belongs to the core.

The room imports the core, and the core nothing of it: whoever carries out a command hands in `KINDS`, the table of all
kinds of nodes that hold children. What is heavy of the room is loaded when that is first asked for an agent.

Files:

* `agent`: the kind of node that is an agent: what the core asks of it
* `budget`: what a model call may cost at most, and what happens at a cap
* `call_to_node`: from what the model asks a tool to do to the node that does it, or to a refusal
* `conversation`: what makes a conversation go on: first message, model calls, answers, people who speak
* `grants`: calls of a tool that people allow always, for a time
* `kinds`: all kinds of nodes that hold children, agents loaded by the first who asks
* `listings`: servers that describe their tools in other words than a conversation was opened with
* `memory`: notes that agents keep for later runs: their rows, and how they are read
* `model_request`: what is sent to the model, and what sayso itself tells it
* `outcomes`: model calls without an answer to go on with: what follows, what people are asked
* `people`: what people say to an agent, who is overheard, and how long it listens after its answer
* `spend_projection`: what model calls cost, as rows beside a step's events
* `tool_calls`: tool calls: whether they may run, as what, and how people change them before
* `tool_results`: what a tool call gave, as the blocks that the model reads
* `wide_grants`: grants for the runs of a thread, or of a flow in a channel: their rows, and where they count
"""
