"""Slack as a service: the client, sockets, users, channels, scopes, files.

May import: `config`.

Invariants:

* An answer of Slack that cannot be used is one of our errors, never a `KeyError`.
* Nothing here shows anything to people.

A crash: Caches only: they fill again.

Files:

* `channel_aliases`: channels that got another id: Slack does that to a private channel that is shared with
  another organisation
* `client`: clients for Slack's Web API, what its errors mean for whoever called it, and how often catch-up
  reads; files that people drop into a thread as an answer: fetched from Slack into the session's own folder
* `manifest`: which rights the app needs, and the manifest that `sayso manifest` prints
* `sockets`: the sockets of Socket Mode, and a watch over them
* `users`: who somebody is, channels by name, links to messages: looked up after the acknowledgement
"""
