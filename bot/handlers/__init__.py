"""From a row of the inbox to a command of the engine, or to words.

May import: `start` and below.

Invariants:

* A row is consumed in the commit that it caused.
* A row that keeps failing is a dead letter; those behind it go on.

A crash: Rows that were not consumed are handled again.

Files:

* `agent_surface`: what an agent of Slack's hears beside: its Messages tab, sessions that were stopped
* `agents`: what people say in a thread to agents, or beside them, with their files
* `catchup`: reads what was said while nobody listened, after a start and after any gap, by channel
* `channel_changes`: channels archived, left or back, messages deleted; what people are told of dead letters
* `clicks`: presses in messages: options, controls, Revoke, the end of a session
* `delivered`: until where threads are known without a read, by what was delivered while the bot was connected
* `replies`: what people say and press: inbox rows → engine commands, or words
* `web_requests`: what people of Slack ask for on the page of the control room
"""
