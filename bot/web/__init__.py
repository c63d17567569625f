"""The control room: a page over the sessions of a store, beside a bot that runs or without one.

May import: `terminal` and below.

Invariants:

* It decides nothing: what is changed is a request in the inbox, which the policy refuses or not.
* Read-only unless it is started otherwise. Nobody sees anything without a login, and beyond loopback that is OIDC's.
* What is asked for often (a page of sessions, what changed) reads few rows, however many sessions there are.

A crash: Logins end; nothing else is kept here.

Files:

* `access`: logins and cookies
* `acts`: what may be changed, as requests in the inbox
* `documents`: what the page is told of one session, of one step, of two sessions side by side
* `index`: what sessions are found by, in memory
* `oidc`: logins by an OIDC provider
* `overview`: who waits for whom, spending, dead letters, locks, queues
* `server`: the routes, the checks of every request, news
"""
