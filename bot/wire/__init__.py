"""Slack as a service: the client, sockets, users, channels, scopes, files.

May import: `config`.

Invariants:

* An answer of Slack that cannot be used is one of our errors, never a `KeyError`.
* Nothing here shows anything to people.
* Every call of the Web API takes a turn from one `Budget`.

A crash: Caches only: they fill again.
"""
