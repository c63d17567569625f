"""Node types: their fields under `with`, their outputs, and their reaction to a crash.

May import: `forms`, `types`, `language`.

Invariants:

* A type is one module with a `SPEC`, and one line of `registry.TYPES`; the reference, the JSON Schema and the checks
  are made from that.
* Models are built by the first node that needs them: a flow uses a few of the types.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.
"""
