"""Agents: conversations with a model as nodes of a flow. Everything but `runner` is pure."""
