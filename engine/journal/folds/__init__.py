"""The fold, by what the events are about; `engine.journal.fold` puts it together.

May import: the rest of `journal`.

Invariants:

* A fold refuses an event that cannot have happened in this state, before it says what the event changes.
* It reads the state and one event, and changes neither.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `agents`: conversations with models: what is said, what tools were asked for and gave, what it used
* `containers`: graphs, jumps and containers
* `grants`: calls of a tool that people allow always
* `nodes`: nodes: starts, outcomes, interruptions, tries
* `outcomes`: what follows a model call that has no answer to go on with
* `prompts`: questions for people, and timers
* `session`: the session as a whole: its start, pauses, lock, messages and end
"""
