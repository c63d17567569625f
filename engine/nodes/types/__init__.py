"""What each node type is: what it takes under `with`, what it gives, what a crash means for it.

May import: `forms`, `types`, `language`.

Invariants:

* A type is one module with a `SPEC`, and one line of `registry.TYPES`; the reference, the JSON Schema and the checks
  are made from that.
* Models are built by the first node that needs them: a flow uses a few of the types.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* a module for each type, by its name: `agent`, `approval`, `ask`, `fail`, `flow`, `foreach`, `http`, `loop`, `message`,
  `noop`, `parallel`, `python`, `set`, `shell`, `switch`, `wait`; and what agents make: `mcp`, `read_file`, `turn`,
  `write_file`
* `addresses`: which addresses a flow may reach over HTTP; which hosts a list of hosts means
* `fields`: names, the kinds of fields that configurations are made of, and `Config`, the root of all of them
* `paths`: where a file of a session may be: in the session's own folder, by a plain relative path
* `preview`: what a node is about to do, in words that a person can check
* `prompts`: what `ask` and `approval` share: clocks, forms, whom a question is for
* `registry`: all types by name; node types of others: installed packages name them under the entry points
  `sayso.nodes`
* `spec`: what a node type is; types that the outputs of several node types share; how far a node is, for
  people to see
"""
