"""Every way in which a flow begins: mention, command, shortcut, form, reaction, message, schedule.

May import: `views` and below.

Invariants:

* One idempotency key, one session.
* One place refuses, one place limits rates.

A crash: The row that asks for a start is consumed in the commit that starts the session.
"""
