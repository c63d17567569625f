"""Flows: reading a file into a `Flow`, with every problem in it located, and what a start needs of its inputs.

Theory: a text goes through `engine.language.yaml` (data with places), `document` (the shape), `checks` (ids, types,
expressions) and comes out as a frozen `model.Flow`, or as one `FlowError` that lists all that is wrong. Loading never
executes, imports, fetches or evaluates anything: expressions are compiled and checked for the names they use.

Reading a text (`reading`) needs a YAML parser and the models of the whole format. They are loaded by the first that reads
one. A session that goes on in a new process reads none: its flow has a form (`form`) beside the pinned text.

Files:

* `agent_document`: the shape of the tools of agents, and of who approves their calls
* `build`: from a document that has passed every check to the frozen flow
* `builtin_tools`: the tools that come with sayso; command lines; the entries of `tools` and `approvals`
* `checks/`: what is wrong with a flow
* `docs/`: what is written about flows
* `document`: the shape of a flow file
* `input_document`: the shape of an input
* `form`: the runtime form of a flow, from which it is had again without reading its text
* `inputs`: inputs of a start: from text or JSON to checked values
* `load`: reads flows; what does the work is loaded by the first that is read
* `model`: a flow that was read and found sound
* `node`: one node of a flow as it is run, and what an agent among them may do
* `outputs`: the type of each node's output, and why it may be null
* `reachability`: orders and reachability in graphs
* `reading`: the work of reading a text, of the first edition too
* `reached`: which nodes have surely run, and what surely holds, when another one runs
* `subflows`: flows that call flows
* `triggers`: patterns, reactions and schedules that start a flow
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
