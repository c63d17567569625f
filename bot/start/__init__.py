"""Every way in which a flow begins: mention, command, shortcut, form, reaction, message, schedule.

May import: `views` and below.

Invariants:

* One idempotency key, one session.
* One place refuses, one place limits rates.

A crash: The row that asks for a start is consumed in the commit that starts the session.

Files:

* `form`: starting a flow by a form: its inputs as fields, and, where nobody knows it yet, the channel; the shortcut
* `from_slack`: flows that people start with a message to the bot or a slash command; who only asks gets
  told; flows that are started from a message: by its words, by a reaction to it, by the shortcut
* `schedules`: starts flows at the times that they name
* `starter`: starts flows, for every way in: one check, one rate limit, one place that refuses; flows whose
  thread begins with a message of the bot: by a command, a form, a schedule, `start-flow`
"""
