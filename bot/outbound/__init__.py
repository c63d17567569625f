"""Everything the bot says in Slack goes through here: the only caller of the methods that show something.

`outbox_worker` is the loop, `slots` brings to date what only changes, `senders` sends what stands for itself, `posts` posts
once, `calls` calls Slack, and `sender` holds what they share.

A row of the outbox is an intent; it was committed with the events that it follows from. Sending has three steps:
the attempt is made durable, the request is made, and what became of it is made durable together with what follows
(a prompt is in front of people, so its clock starts). What a crash does at each point:

- before the attempt: the row is sent as if nothing had been;
- between attempt and result: nobody knows. The row is looked up in Slack by its key before it is sent again, and
  a copy that is found is adopted. Where two copies are found the older counts and the other one is disarmed;
- after the result: nothing.

What is posted in a lane (a thread) is sent one after the other, oldest first; lanes go side by side. A row waits for
its turn to call Slack (`bot.wire.budget`) before it is rendered. Edits are in the lane of their message: of several
changes the last one is shown, and no post waits for it. Edits and reactions can be repeated without harm, so they
are not looked up. Messages that one person sees are sent at most
once. What Slack refuses for good fails its row and is never tried again.
"""
