"""Node types: what each takes and gives (`types`), and the runners of those that have effects (`runtime`).

Files:

* `api`: what authors of node types import
* `runtime/`: the runners of those that have effects
* `types/`: what each type takes and gives
"""
