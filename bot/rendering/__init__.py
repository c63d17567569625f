"""Messages for Slack, as pure functions of a session's state: values in, Block Kit out.

Nothing here reads a clock, the network or a store. Three rules hold for every message:

- Text from people or programs is inert: escaped in mrkdwn, or placed in `plain_text`, which has no markup;
  characters that hide or reorder other text are spelled out. mrkdwn is sent `verbatim`, so that no bare word
  becomes a mention or a link. Only a flow's own text is markup.
- Slack's limits are kept for any input. Long content is cut at a safe place, with a notice;
  buttons and the names of the people asked are never cut.
- Buttons carry ids and the index of a choice, never its meaning.

Every message that stays (prompts, cards, notes) carries its outbox key in Slack's metadata and in its first `block_id`,
by which it is found again when it is unknown whether it was posted.
"""
