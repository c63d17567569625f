"""Scenarios: tests of flows that their users write, run on the real engine and the real policy.

A scenario says who the people are, what comes of every command and request, what Claude says, and then step by step
what people do, how time goes by and what must be true. Nothing outside is touched unless it says so. What lasts
between two processes (the store, the clock, what was done outside, what people see) is the `World`; a `Life` is one
process. With kills, a scenario is played once as it stands and then once for every commit of that run, in a world
where the process dies right before or right after that commit: all that counts must come out the same.

Files:

* `document`: the file as it is written, the scenario that it gives, and how it names places in a flow
* `expect`: what must be true; what counts of a run, and how two runs are compared
* `life`: one process over the world: it runs until nothing more happens by itself
* `load`: reads a file and checks it against its flow
* `play`: a whole scenario, once or with kills
* `reader`: the parts of a file that depend on its flow and its people
* `report`: what became of scenarios, for people and as JUnit XML
* `steps`: what people do
* `world`: what outlives a process; the runner of every node
"""
