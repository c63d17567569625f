"""Assembly: from settings to an engine and to the parts of a bot.

May import: `intents` and below.

Invariants:

* Production, the local workspace and tests differ only in the parts assembled here.

Effects of a crash: none of its own.
"""
