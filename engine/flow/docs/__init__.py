"""What is written about flows: the reference, the JSON Schema for editors, and diagrams.

May import: the rest of `flow`.

Invariants:

* Made from the models of the loader, so that they cannot say anything else.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `agent_reference`: what the flow reference says of the tools of agents and of approvals of their calls,
  from the models
* `diagram`: A flow as a picture: Mermaid text, and SVG of our own layout; A flow as SVG
* `reference`: writes the flow reference (`docs/flow-reference.md`) from the models, so that it cannot say
  anything else
* `schema`: the JSON Schema of flow files, for editors: what `sayso schema` prints
"""
