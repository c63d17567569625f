"""The gate: agents that sayso does not run ask people here before they act.

A request is a session: an approval (`call` is the node that it covers), a question, or a flow. `rules` reads `gate.yml`, which
says who is asked for what; `requests` keeps requests and hands answers out; `server` lets agents ask over HTTP with a token. The
doors (`hook`, `mcp_server`, `proxy`) run beside an agent, as its user, and know `client` alone: they can ask, and read what they
asked.

It may import whatever starts sessions. Doors import nothing heavy: a hook answers in 150 ms.

Invariants: an allow is handed out once, by a transaction of the store. Whatever fails is not an allow.

What a crash does: what was asked is in the inbox; asked again, a request is the one that it was. A crash between the handing
out and the door asks people again.
"""
