"""Providers of models, and the runner of a model call.

May import: `nodes.runtime` and below.

Invariants:

* A provider turns a `TurnRequest` into a stream whose last event is `Finished`, or raises an error of
  `engine.messages.errors`.
* Nothing is retried here: whoever keeps the journal decides, since each try may cost.
* SDKs are imported when the first turn is asked for.

A crash: A call that was cut is lost; the budget that was set aside for it is not.

Files:

* `claude`: Claude, through Anthropic's SDK
* `function_tools`: Python functions that are tools: what the model is told of them
* `keys`: where the key for a provider is looked for
* `model_turns`: the runner of model calls; nothing of a vendor is loaded before the first one
* `provider`: what every provider is, looks at before a turn, and does when one is aborted
* `scripted`: a provider that says what a script says
* `turn_outcome`: how a model call ended, as the outcome that the core gets
* `turn_runner`: one call of a model, as the runner of the node type `turn`, and its files
"""
