"""What each node type is: what it takes under `with`, what it gives, what a crash means for it.

May import: `forms`, `types`, `language`.

Invariants:

* A type is registered once; the reference, the JSON Schema and the checks are made from that.
* Models are built by the first node that needs them: a flow uses a few of the types.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `addresses`: which addresses a flow may reach over HTTP
* `agent`: what may stand under `with:` of an `agent`, and what the parts of a conversation are made of
* `code`: which code of its own a node runs: what its config names beside the flow file
* `configs`: what may stand under `with:`, one model per node type
* `container_configs`: what may stand under `with:` of the types that hold other nodes, and of `python`;
  `engine.nodes.types.configs` has the rest
* `hosts`: which hosts a list of hosts means
* `installed`: node types of others: installed packages name them under the entry points `sayso.nodes`
* `mcp`: which MCP servers there are: a JSON file in the form that other programs use too
* `message`: what may stand under `with:` of a `message`: what it says, where it goes, and who sees it
* `outputs`: the types of what nodes give, `nodes.<id>`, by type of the node and what stands under its
  `with`
* `paths`: where a file of a session may be: in the session's own folder, by a plain relative path
* `prompt_clocks`: the clocks that a question may have, as they stand under `with` of `ask` and `approval`
* `prompt_configs`: what may stand under `with:` of the types that ask people: `ask` and `approval`;
  `engine.nodes.types.configs` has the rest
* `registry`: the registry of node types: what each takes under `with`, gives as output, and what a crash
  means for it
* `spec`: what a node type is: how its `with` is checked and settled, and what a crash means for it
"""
