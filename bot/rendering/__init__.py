"""What people see in Slack, as pure functions of a session's state: values in, Block Kit out.

Nothing here reads a clock, the network or a store. Three rules hold for every message:

- Text that people or programs wrote is inert: escaped in mrkdwn, or placed in `plain_text` where no markup counts;
  characters that hide or reorder other text are spelled out. mrkdwn is sent `verbatim`, so that no bare word
  becomes a mention or a link. Only a flow's own words are markup.
- Slack's limits are kept for any input. What does not fit is cut where nothing breaks, and says that it was cut;
  buttons and the names of those who are asked are never what is cut.
- Buttons carry ids and the index of a choice, never what the choice means.

Every message that stays (prompts, cards, notes) carries its outbox key in Slack's metadata and in its first
`block_id`, by which it is found again when nobody knows whether it was posted.

Files:

* `agents`: an agent's words as they come, its tool calls as short lines
* `approvals`: what belongs to a decision: votes, changes, what will run, who is asked now
* `blocks`: Block Kit, built so that Slack takes it
* `calls`: several calls of an agent that wait for people, as one message
* `card`: the card of a session, and what it says of its lock
* `clocks`: what is told beside a question: reminders, escalations, that it cannot be shown
* `flow`: what rendering reads of a flow, and what people call a place in a session
* `forms`: a form: its control in a message, its modal page by page, its raw values
* `grants`: calls of tools that are always allowed for a time
* `home`: the app's Home
* `nested`: the lines of a node on a card, and what is inside a container
* `notes`: plain messages, menus, ends of sessions, and what `message` nodes post
* `phrases`: what the bot says, in plain words
* `plan`: the plan of an agent: its steps as lines, and how far they are
* `prompts`: a prompt, open and closed
* `text`: text escaped, visible, cut where nothing breaks, and sized as Slack sizes it
* `waiting`: a question outside of its thread: on the Home, in a direct message, in a digest
"""
