"""What is wrong with a flow, before it runs: each check reports all it finds, located, with a remedy.

May import: the rest of `flow`.

Invariants:

* A check never executes, imports, fetches or evaluates anything.
* Errors are in the words of flows, never of Python.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `agents`: what is wrong with agents: their tools, who approves their calls, what they answer with, whose
  conversations they get
* `all`: what hangs together in a flow: names, ids, node types, and every name that an expression uses; what
  is allowed in a flow that loads, and is probably not meant
* `edges`: what is wrong with the edges of a list of nodes: ends that are not there, circles, loops that
  lead nowhere; approvals that cover a node (`covers: <id>`): whether that node can be covered, and whether
  what it will do is known when the approval is asked
* `inputs`: what is wrong with one input, of a flow or of a tool: its name, and how its type, choices and
  default go together
* `nodes`: what hangs together in lists of nodes: ids, types, what each type takes, and what expressions may
  name where
* `shape`: the JSON Schema of what an agent answers, as it stands in a file: what is wrong with it, and
  where; the lists of nodes in a flow's raw data: where each node stands, before anybody knows whether the
  flow is sound; whether what expressions give fits the fields that they stand in
* `visibility`: checks the names in expressions against what surely exists when the node runs; names, and
  expressions in texts: what is wrong with them, in the words that a flow's author reads
"""
