"""What each node type is: what it takes under `with`, what it gives, what a crash means for it.

May import: `forms`, `types`, `language`.

Invariants:

* A type is one module with a `SPEC`, and one line of `registry.TYPES`; the reference, the JSON Schema and the checks
  are made from that.
* Models are built by the first node that needs them: a flow uses a few of the types.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `agent`: agents: instructions, tools, caps
* `approval`: questions that are decided
* `ask`: questions that are answered
* `end`: an early end, as a success
* `fail`: ends with an error of the flow's own
* `flow`: another flow, called
* `foreach`: a body for each item
* `http`: a request
* `loop`: a body until a condition holds
* `mcp`: a tool call to an MCP server, made by an agent
* `message`: a message in a thread, a channel, to a person
* `noop`: nothing
* `parallel`: branches side by side
* `python`: a function
* `read_file`: a file read by an agent
* `set`: values
* `shell`: a program
* `switch`: one of several bodies
* `turn`: a model call, made by an agent
* `wait`: time
* `remember`: a note that an agent keeps for later runs
* `write_file`: a file written by an agent
* `addresses`: which addresses a flow may reach over HTTP; which hosts a list of hosts means
* `fields`: names, the kinds of fields that configurations are made of, and `Config`, the root of all of them
* `paths`: where a file of a session may be: in its own folder, by a plain relative path
* `preview`: what a node is about to do, in words that a person can check
* `prompts`: what `ask` and `approval` share: clocks, forms, whom a question is for
* `registry`: all types by name, of installed packages and of `@node` too
* `spec`: what a node type is; types that several outputs share; how far a node is
"""
