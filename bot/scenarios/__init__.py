"""Scenarios: tests of flows that their users write, run on the real engine and the real policy.

A scenario says who the people are, what comes of every command and request, what Claude says, and then step by step
what people do, how time goes by and what must be true. Nothing outside is touched unless it says so. What lasts
between two processes (the store, the clock, what was done outside, what people see) is the `World`; a `Life` is one
process. With kills, a scenario is played once as it stands and then once for every commit of that run, in a world
where the process dies right before or right after that commit: all that counts must come out the same.

| module | |
|---|---|
| `document` | the file, as it is written; what they give; how nodes and questions are named |
| `load`, `reader` | read it, and check it against its flow |
| `world` | what outlives a process: the clock, people, effects, what was said; the runner of every node: what the scenario says comes of it |
| `life` | one process over the world: runs until nothing more happens by itself |
| `steps` | what people do |
| `expect` | what must be true |
| `play` | a whole scenario, once or with kills |
| `story` | what counts of a run, and how two are compared |
| `report` | for people, and as JUnit XML |
"""
