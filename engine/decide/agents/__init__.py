"""Agents: conversations with a model as part of a flow. What is pure of them belongs to the core.

The room imports the core, and the core nothing of it: whoever carries out a command hands in `KINDS`, the table of all
kinds of nodes that hold children. What is heavy of the room is loaded when that is first asked for an agent.
"""
