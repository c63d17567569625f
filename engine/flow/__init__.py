"""Flows: reading a file into a `Flow`, with every problem in it located, and what a start needs of its inputs.

Theory: a text goes through `engine.language.yaml` (data with places), `document` (the shape), `checks` (ids, types,
expressions) and comes out as a frozen `model.Flow`, or as one `FlowError` that lists all that is wrong. Loading never
executes, imports, fetches or evaluates anything: expressions are compiled and checked for the names they use.

Reading a text (`reading`) needs a YAML parser and the models of the whole format. They are loaded by the first that reads
one. A session that goes on in a new process reads none: its flow has a form (`form`) beside the pinned text.
"""

from engine.flow.inputs import coerce_inputs, parse_input
from engine.flow.model import Edge, Flow, Input, Limits, NodeList, Trigger
from engine.flow.node import Node, Retry

__all__ = [
    "Edge",
    "Flow",
    "Input",
    "Limits",
    "Node",
    "NodeList",
    "Retry",
    "Trigger",
    "coerce_inputs",
    "parse_input",
]
