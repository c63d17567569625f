"""Providers of models, and the runner of a model call.

May import: `nodes.runtime` and below.

Invariants:

* A provider turns a `TurnRequest` into a stream whose last event is `Finished`, or raises an error of
  `engine.messages.errors`.
* Nothing is retried here: whoever keeps the journal decides, since each try may cost.
* SDKs are imported when the first turn is asked for.

A crash: A call that was cut is lost; the budget that was set aside for it is not.
"""
