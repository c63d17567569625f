"""Agents: conversations with a model as part of a flow. What is pure of them belongs to the core.

The core asks for `behaviour` and names nothing else of this room; see `engine.decide.behaviours`.
"""
