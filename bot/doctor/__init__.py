"""Checks of an installation.

May import: `compose` and below.

Invariants:

* A check changes nothing.
* A finding says what is wrong, and what to do.

A crash: It is run again.

Files:

* `agents`: checks for flows with agents: the key for Claude, what models cost, scripts, MCP servers; checks
  of what is stored: whether it is as new as what was acknowledged, and, in depth, every session of it
* `checks`: checks of an installation, each with what it found and what to do
* `findings`: what a check of an installation found
* `slack`: checks against Slack itself: each kind of conversation can be read, and what flows name is there
"""
