"""From a payload of Slack to what it asks for: plain functions.

May import: `wire` and below.

Invariants:

* What is not persisted is not acknowledged: Slack sends it again.
* A payload of a wrong shape is counted and acknowledged, and nothing else.

A crash: A payload without an acknowledgement comes again; its idempotency key knows it.

Files:

* `decisions`: what is done with what arrives from Slack, as values, and the kinds of inbox rows that become
  of it
* `interactions`: what people press, choose, submit and command in Slack, as what is done with it
* `payloads`: what arrives from Slack, as what is done with it (`bot.inbound.decisions`)
* `start_command`: what people write to start a flow: `NAME key=value ...`, `run NAME ...`
* `triggers`: what the served flows listen for beside their names: words in channels, reactions, schedules
* `view_values`: what opens a view, what was submitted, and what is answered to it
* `wellformed`: whether what a payload became has the types that everything behind it relies on
"""
