"""A conversation with a model as values: blocks, turns, the stream's fold, prices and limits.

May import: `language`.

Invariants:

* Content is given back as it came: thinking with its signature, keys of tool inputs in their order.
* A turn without a stop reason is a failure, never a short answer.
* Costs are exact: whole billionths of a dollar, rounded up.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `answer_form`: the schema of an answer as the API takes it
* `errors`: what can go wrong with a turn
* `files`: files in a conversation: named, and from the first answer on known by their bytes
* `model_limits`: what the core may know about models beside the state: prices and limits are configuration
* `listed`: what Claude's models cost, as a maintained data set says
* `messages`: messages of a conversation: which one is legal; the last answer that has to be JSON
* `models`: what models take
* `money`: dollars as people read them
* `prices`: what a turn costs, exactly, and what it can cost at most
* `request`: what a request asks for beside the conversation, and the features that may be refused
* `stream`: the events of the Messages API's stream, folded into content
* `turns`: a turn as plain values: what is asked, what a stream tells, how it ended
* `usage`: what the API says that a turn has used
"""
