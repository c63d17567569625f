"""The runtime form of a flow: the `Flow` itself as JSON, from which it is had again without a YAML parser and without the
models of the format.

It is kept beside the pinned text, for one release (`engine.run.stored.release`), and stands for nothing by itself: what is
read back has to give the digest that the session pinned, and its types of packages have to take what the flow gives them
now. Else the text is read.
"""

from __future__ import annotations

from functools import cache

import msgspec

from engine.flow.model import Flow
from engine.nodes.types.registry import node_types, package_of


@cache
def _decoder() -> msgspec.json.Decoder[Flow]:
    return msgspec.json.Decoder(Flow)


def form_of(flow: Flow) -> bytes | None:
    """The form of a flow; None for one that has none: it lacks a type here, or a value in it has no place in JSON."""
    try:
        form = msgspec.json.encode(flow)
        return form if not flow.absent and _decoder().decode(form) == flow else None
    except (ValueError, OverflowError):
        return None


def flow_from_form(form: bytes, digest: str) -> Flow | None:
    """The flow that a form is of; None where it is not that of this digest, or a type of a package has changed."""
    try:
        flow = _decoder().decode(form)
    except msgspec.DecodeError:
        return None
    return flow if flow.digest == digest and _fits(flow) else None


def _fits(flow: Flow) -> bool:
    """True if the types of packages take what the flow gives them."""
    if any(package_of(kind) != package for kind, package in flow.packages.items()):
        return False
    own = (node for nodes in flow.lists.values() for node in nodes.nodes if node.type in flow.packages)
    return not any(node_types()[node.type].check(node.config) for node in own)
