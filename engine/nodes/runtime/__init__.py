"""What runs nodes: programs, requests, functions, files, MCP servers; secrets, and redaction.

May import: `journal` and below.

Invariants:

* A runner raises nothing but `CancelledError`; it returns an outcome.
* Secrets become values at the last moment, and are taken out of everything that comes back.
* What is launched is in the journal before it starts.

A crash: A start whose outcome is not journaled is an unknown effect: people are asked, or it runs again
with the same idempotency key.

Files:

* `digests`: digests of the code that a flow's nodes run: what `engine.journal.queries` compares
* `files`: the `read_file` and `write_file` nodes: files in the session's own folder, texts to write, texts
  and pictures to read
* `folder`: reading in a session's own folder, and never outside of it
* `http`: the `http` node: one request, and up to five redirects, within the address rules of `address.py`;
  from the config of an `http` node to a request, and from a redirect to the next one
* `images`: what kind of picture some bytes are, how large it is, and whether it is whole
* `mcp`: tools of MCP servers: a client for each server that is used, kept open by the process and shared by
  its sessions; what a tool of an MCP server gave, as the output of a node: plain JSON of a bounded size,
  without secrets
* `process`: one process and all that it starts, as a group that can be ended for certain; keeps the
  beginning and the end of an output that may be endless, in bounded memory, without secrets; lines in which
  a program says how far it is: `::progress 3/10 copying`, `::progress 30% copying`
* `python`: the `python` node: calls a function of the user's, with arguments checked against its type hints
* `redact`: takes secret values out of whatever leaves a node: text, JSON, and text that arrives in pieces
* `runner`: what a node that has effects gets, and what it may say afterwards
* `secrets`: secrets: where their values come from, and the one moment in which a reference becomes a value
* `shell`: the `shell` node: runs one program, or one script, and says how it ended
* `table`: the table of runners by node type, each loaded by the first node that needs it; runs the types of others,
  with secrets resolved at the last moment, and taken out of what comes back
* `user_code`: what code of users gets when it runs as a node, and how it is told to leave
"""
