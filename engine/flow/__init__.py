"""Flows: reading a file into a `Flow`, with every problem in it located, and checking the inputs of a start.

Theory: a text goes through `engine.language.yaml` (data with places), `document` (the shape), `checks` (ids, types,
expressions) and becomes a frozen `model.Flow`, or one `FlowError` that lists all faults. Loading never executes,
imports, fetches or evaluates anything: expressions are compiled and checked for the names they use.

Reading a text (`reading`) needs a YAML parser and the models of the whole format, which are loaded on first use. A
session that continues in a new process needs neither: its flow has a form (`form`) beside the pinned text.
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
