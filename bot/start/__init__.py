"""Every way in which a flow begins: mention, command, shortcut, form, reaction, message, schedule.

May import: `views` and below.

Invariants:

* One idempotency key, one session.
* One place refuses, one place limits rates.

A crash: The row that asks for a start is consumed in the commit that starts the session.

Files:

* `form`: starts by a form: inputs as fields, and the channel where nobody knows it yet
* `from_slack`: starts by a message, a slash command, words, a reaction, the shortcut; who only asks gets told
* `grants`: calls that are always allowed beyond one run: told, taken back
* `memory`: what agents have noted for a channel: told, edited, forgotten
* `schedules`: starts at the times that flows name
* `starter`: every start: one check, one rate limit, one place that refuses; threads that the bot begins
"""
