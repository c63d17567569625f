"""Flows: reading a file into a `Flow`, with every problem in it located, and what a start needs of its inputs.

Theory: a text goes through `yaml` (data with places), `document` (the shape), `check` (ids, types, expressions)
and comes out as a frozen `model.Flow`, or as one `FlowError` that lists all that is wrong. Loading never
executes, imports, fetches or evaluates anything: expressions are compiled and checked for the names they use.
"""

from engine.flow.inputs import coerce_inputs, parse_input
from engine.flow.load import flow_from_body, load_flow, load_flow_file, load_flows
from engine.flow.model import Edge, Flow, Input, Limits, Node, NodeList, Retry, Trigger

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
    "flow_from_body",
    "load_flow",
    "load_flow_file",
    "load_flows",
    "parse_input",
]
