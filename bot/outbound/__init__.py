"""Everything the bot says in Slack goes through here: the only caller of the methods that show something.

A row of the outbox is an intent; it was committed with the events that it follows from. Sending has three steps:
the attempt is made durable, the request is made, and what became of it is made durable together with what follows
(a prompt is in front of people, so its clock starts). What a crash does at each point:

- before the attempt: the row is sent as if nothing had been;
- between attempt and result: nobody knows. The row is looked up in Slack by its key before it is sent again, and
  a copy that is found is adopted. Where two copies are found the older counts and the other one is disarmed;
- after the result: nothing.

What is posted in a lane (a thread) is sent one after the other, oldest first; lanes go side by side. A row waits for
its turn to call Slack (`bot.wire.budget`) before it is rendered. An edit is in no lane: of several changes of
a message the last one is shown, and no post waits for it. Edits and reactions can be repeated without harm, so they
are not looked up. Messages that one person sees are sent at most
once. What Slack refuses for good fails its row and is never tried again.

Files:

* `agent_messages`: which entries of an agent stand in which message, and that each is there once
* `calls`: the calls that show something in Slack
* `deliveries`: what `message` nodes post, and where; files that are uploaded
* `destinations`: places outside of the thread, mentions, names of agents; whether a thread can be posted in
* `direct`: questions in direct messages: copies for who is asked, and digests
* `notices`: what is said in place of doing something; reminders and escalations
* `outbox_worker`: the loop of the outbox: one row of each lane at a time
* `posts`: posting once: a request whose outcome is unknown is looked up
* `progress`: cards drawn again for progress of running nodes, and for a queue that moved up
* `sender`: what everything that sends rows has: the store, the calls, lookups
* `senders`: what sending a row means, kind by kind
* `shards`: of several processes that send, one has each channel
* `streams`: the text of agents while it comes
* `turns`: which turn a row waits for: how urgent it is, and which method it calls
"""
