"""From a row of the inbox to a command of the engine, or to words.

May import: `start` and below.

Invariants:

* A row is consumed in the commit that it caused.
* A row that keeps failing is a dead letter; those behind it go on.

A crash: Rows that were not consumed are handled again.

Files:

<<<<<<< HEAD
* `catchup`: reads what was said while nobody listened, after a start and after any gap, by channel
=======
* `agent_surface`: what an agent of Slack's hears beside: its Messages tab, sessions that were stopped
* `catchup`: reads what was said while nobody listened, after a start and after any gap
>>>>>>> 236a349 (Offer the app as an agent of Slack's, as an opt-in: how sessions stand, Slack's button that cancels, suggested prompts; the local workspace shows it)
* `channel_changes`: channels archived, left or back, messages deleted; what people are told of dead letters
* `clicks`: presses in messages: options, controls, Undo, the end of a session
* `delivered`: until where threads are known without a read, by what was delivered while the bot was connected
* `replies`: what people say and press: inbox rows → engine commands, or words
"""
