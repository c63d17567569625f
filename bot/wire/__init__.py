"""Slack as a service: the client, sockets, users, channels, scopes, files.

May import: `config`.

Invariants:

* An answer of Slack that cannot be used is one of our errors, never a `KeyError`.
* Nothing here shows anything to people.
* Every call of the Web API takes a turn from one `Budget`.

A crash: Caches only: they fill again.

Files:

* `budget`: whose turn it is to call Slack: by urgency, within Slack's limits
* `channel_aliases`: channels that got another id because they are shared with another organisation
* `client`: clients for the Web API, errors, files that people drop
* `limits`: one limit of Slack's: what is used up, what follows from a refusal
* `manifest`: which rights the app needs, and the manifest that `sayso manifest` prints
* `said`: what was said in a thread or a channel, for an agent that is called into it
* `sockets`: the sockets of Socket Mode, and a watch over them
* `users`: people, channels by name, links to messages: looked up after the acknowledgement
"""
