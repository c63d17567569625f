"""Agents: conversations with a model as part of a flow. Their pure part belongs to the core.

This room imports the core, never the other way round: callers of the core hand in `KINDS`, the table of all kinds of
nodes that hold children. The heavy part of this room is loaded on the first agent.
"""
