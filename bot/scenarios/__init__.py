"""Scenarios: tests of flows that their users write, run on the real engine and the real policy.

A scenario says who the people are, what comes of every command and request, what Claude says, and then step by step
what people do, how time goes by and what must be true. Nothing outside is touched unless it says so. What lasts
between two processes (the store, the clock, what was done outside, what people see) is the `World`; a `Life` is one
process. With kills, a scenario is played once as it is and then once for every commit of that run, in a world
where the process dies right before or right after that commit: all that counts must come out the same.
"""
