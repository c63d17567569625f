"""Flows: reading a file into a `Flow`, with every problem in it located, and what a start needs of its inputs.

Theory: a text goes through `yaml` (data with places), `document` (the shape), `check` (ids, types, expressions)
and comes out as a frozen `model.Flow`, or as one `FlowError` that lists all that is wrong. Loading never
executes, imports, fetches or evaluates anything: expressions are compiled and checked for the names they use.

Reading a text needs a YAML parser and the models of the whole format. They are loaded by the first that reads one,
so that a process that only looks at sessions starts without them.
"""

from typing import TYPE_CHECKING, Any

from engine.flow.inputs import coerce_inputs, parse_input
from engine.flow.model import Edge, Flow, Input, Limits, Node, NodeList, Retry, Trigger

if TYPE_CHECKING:
    from engine.flow.load import flow_from_body, load_flow, load_flow_file, load_flows

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


def __getattr__(name: str) -> Any:
    if name not in ("flow_from_body", "load_flow", "load_flow_file", "load_flows"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from engine.flow import load

    return getattr(load, name)
