"""What is wrong with a flow, before it runs: each check reports all it finds, located, with a remedy.

May import: the rest of `flow`.

Invariants:

* A check never executes, imports, fetches or evaluates anything.
* Errors are in the words of flows, never of Python.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `agents`: agents: their tools, who approves their calls, what they answer with, whose conversations they get
* `all`: a whole flow: names, ids, node types, names in expressions; what is allowed and probably not meant
* `edges`: the edges of a list of nodes; approvals that cover a node
* `inputs`: one input, of a flow or of a tool
* `nodes`: lists of nodes: ids, types, what each type takes, and what expressions may name where
* `shape`: lists in raw data, JSON Schemas, and whether values fit the fields that they stand in
* `starts`: what starts flows: the same words twice, words of the bot's own, runs without a requester
* `visibility`: the names in expressions against what surely exists when the node runs; texts
"""
