"""Providers answer turns of a conversation with a model. This is the basis of the coming `agent` node.

Theory
------
A conversation is a list of messages in the JSON of Anthropic's Messages API. We keep it, send it whole with every
call, and store what comes back verbatim: the provider remembers nothing, so a conversation can go on in another
process, days later. A provider does one thing: it turns a `TurnRequest` into a stream of events whose last one is
`Finished`, or raises one of the errors of `engine.messages.errors`.

* `turns`: what is asked, what a stream tells and how it ends; `port`: the protocol, and `complete`, which collects a turn;
* `messages`: messages and their blocks, and `legal`, which says what is wrong with a conversation;
* `prices`: what a turn costs, and what it can cost at most;
* `assembly`: the pure fold of the wire's events into content;
* `claude`: the real one; its SDK is imported when the first turn is asked for, never before;
* `scripted`: a provider that says what a script says.

Invariants
----------
* Content is given back exactly as it came: thinking with its signature, keys of tool inputs in their order.
* A turn without a stop reason is a failure (`StreamCut`), never a short answer.
* Nothing is retried here: whoever keeps the journal decides, since each try may cost.
* A turn that is aborted ends within a second with what can stay in the conversation, marked as interrupted.

A crash in the middle of a turn leaves nothing behind; the tokens are paid for, hence the reservation before each
call (`prices.worst_case`).
"""

KEY_VARIABLES = ("SAYSO_ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY")
"""Where the key for Claude is looked for; the first that is set counts."""
