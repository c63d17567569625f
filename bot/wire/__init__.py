"""Slack as a service: the client, sockets, users, channels, scopes, files.

May import: `config`.

Invariants:

* An answer of Slack that cannot be used is one of our errors, never a `KeyError`.
* Nothing here shows anything to people.

A crash: Caches only: they fill again.

Files:

* `channel_aliases`: channels that got another id: Slack does that to a private channel that is shared with
  another organisation
* `channels`: channels by id and by name
* `client`: clients for Slack's Web API, and what its errors mean for whoever called it
* `downloads`: files that people drop into a thread as an answer: fetched from Slack into the session's own
  folder
* `manifest`: the Slack app's manifest for the features that flows use: what `sayso manifest` prints
* `permalinks`: links to messages, as Slack gives them
* `read_limiter`: how often catch-up reads by itself
* `scopes`: which rights the app needs, and what does not work without each
* `sockets`: the sockets of Socket Mode, and a watch over them
* `users`: who somebody is: the facts on which the policy decides, looked up after the acknowledgement
"""
