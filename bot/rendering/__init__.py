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
"""
