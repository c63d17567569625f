"""Slack as a service: the client, sockets, users, channels, scopes, files.

May import: `config`.

Invariants:

* An answer of Slack that cannot be used is one of our errors, never a `KeyError`.
* Nothing here shows anything to people.

A crash: Caches only: they fill again.

Files:

* `channel_aliases`: channels that got another id because they are shared with another organisation
* `client`: clients for the Web API, errors, the pace of reading, files that people drop
* `manifest`: which rights the app needs, and the manifest that `sayso manifest` prints
* `sockets`: the sockets of Socket Mode, and a watch over them
* `users`: people, channels by name, links to messages: looked up after the acknowledgement
"""
