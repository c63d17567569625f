"""Providers of models, and the runner of a model call.

May import: `nodes.runtime` and below.

Invariants:

* A provider turns a `TurnRequest` into a stream whose last event is `Finished`, or raises an error of
  `engine.messages.errors`.
* Nothing is retried here: whoever keeps the journal decides, since each try may cost.
* SDKs are imported when the first turn is asked for.

A crash: A call that was cut is lost; the budget that was set aside for it is not.

Files:

* `claude`: Claude, through Anthropic's SDK; what the Messages API wants to hear, and what its refusals mean
* `model_turns`: the runner of model calls; nothing of a vendor is loaded before the first call
* `provider`: what every provider is, and `complete` for who needs no stream; waiting for something that may
  be aborted meanwhile; what every provider looks at before a turn: the same requests are refused by all of
  them
* `scripted`: A provider that says what a script says: for tests, for a first try without a key, and for
  users' own tests; scripts in place of Claude: for a first try without a key, and for users' own tests
* `turn_runner`: one call of a model, as the runner of the inner node type `turn`; Python functions as
  tools: what a function takes, by its type hints, and what it says of itself; files of a session as blocks
  of a conversation: pictures, PDFs and text, read when the turn is asked for
"""
