"""Every way in which a flow begins: mention, command, shortcut, form, reaction, message, schedule.

May import: `views` and below.

Invariants:

* One idempotency key, one session.
* One place refuses, one place limits rates.

A crash: The row that asks for a start is consumed in the commit that starts the session.

Files:

* `form`: starting a flow by a form: its inputs as fields, and, where nobody knows it yet, the channel
* `from_messages`: how people begin flows: with a message to the bot, with a slash command, with a view
* `from_triggers`: what starts flows beside a mention and a slash command: words in a channel, reactions,
  schedules, `start-flow`
* `rate_limits`: how often flows are started: by one person, in one channel, in the workspace
* `rooted`: A flow that is wanted in a channel, in a thread that the bot is to begin: by a schedule, or by
  `start-flow`
* `schedules`: starts flows at the times that they name
* `shortcut`: the message shortcut: which flow is started about this message
* `starter`: starts flows, for every way in: the same checks, and the same words for whoever is refused
* `status`: how sessions stand, as words for people: of a thread, of a channel, and where their questions
  are asked
"""
