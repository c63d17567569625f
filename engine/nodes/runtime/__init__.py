"""What runs nodes: programs, requests, functions, files, MCP servers; secrets, and redaction.

May import: `journal` and below.

Invariants:

* A runner raises nothing but `CancelledError`; it returns an outcome.
* Secrets become values at the last moment, and are taken out of everything that comes back.
* What is launched is in the journal before it starts.

A crash: A start whose outcome is not journaled is an unknown effect: people are asked, or it runs again
with the same idempotency key.

Files:

* `effects`: asked right before every effect: may this work still have it?
* `files`: the `read_file` and `write_file` nodes
* `folder`: reading in a session's own folder, and never outside of it
* `http`: the `http` node: one request, and up to five redirects
* `images`: what kind of picture some bytes are, how large it is, and whether it is whole
* `kept_files`: the files that conversations have shown a model, by the digest of their bytes
* `mcp`: tools of MCP servers: a client for each server
* `mcp_asks`: what an MCP server asks people for in the middle of a call, as forms and addresses of ours
* `mcp_calls`: calls of an MCP server that are under way, and what it asks within one that stays open
* `mcp_oauth`: OAuth for MCP servers over HTTP, by client credentials
* `mcp_resources`: resources of an MCP server: which there are, and what stands in one
* `mcp_results`: what a tool of an MCP server gave, as the output of a node
* `mcp_servers`: which MCP servers there are: a JSON file in the form that other programs use too
* `process`: one process and all that it starts; its output, bounded; its lines of progress
* `python`: the `python` node: a function of the user's, its arguments checked against its type hints
* `redact`: takes secret values out of whatever leaves a node
* `runner`: what a node that has effects gets, and what it may say afterwards
* `secrets`: where values of secrets come from, and the one moment in which a reference becomes a value
* `shell`: the `shell` node: one program, or one script
* `table`: the table of runners by node type, each loaded by the first node that needs it
* `trees`: what a folder has in it, as a value: files by the digests of their bytes
* `user_code`: what code of users gets when it runs as a node, and how it is told to leave
"""
