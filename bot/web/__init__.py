"""The control room: a page over the sessions of a store, beside a bot that runs or without one.

May import: `terminal` and below.

Invariants:

* It decides nothing: what is changed is a request in the inbox, which the policy refuses or not.
* Read-only unless it is started otherwise. Nobody sees anything without a login, and beyond loopback that is OIDC's.
* Pages are drawn here, from the document that a program gets at the same address; a script asks for them again.
* What is asked for often (a page of sessions, what changed) reads few rows, however many sessions there are.

A crash: Logins end; nothing else is kept here.
"""
