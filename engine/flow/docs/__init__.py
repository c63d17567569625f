"""What is written about flows: the reference, the JSON Schema for editors, and diagrams.

May import: the rest of `flow`.

Invariants:

* Made from the models of the loader, so that they cannot say anything else.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `agent_reference`: the part of the reference about tools of agents and approvals of their calls
* `diagram`: a flow as a picture: Mermaid text, and SVG of our own layout
* `reference`: the flow reference (`docs/flow-reference.md`)
* `schema`: the JSON Schema of flow files, for editors: what `sayso schema` prints
"""
