"""Runtime form of a flow: the `Flow` as JSON, restored without a YAML parser and without the models of the format.

It is kept beside the pinned text, for one release (`engine.run.stored.release`), and is never authoritative: the
restored flow must have the digest that the session pinned, and its types of packages must still accept their
configurations. Otherwise the text is read.
"""

from __future__ import annotations

import msgspec

from engine.flow.model import Flow
from engine.language.structs import decoder
from engine.nodes.types.registry import node_types, package_of


def form_of(flow: Flow) -> bytes | None:
    """Return the form of a flow, or None if it has none: a type is missing here, or a value cannot be represented in
    JSON."""
    try:
        form = msgspec.json.encode(flow)
        return form if not flow.absent and decoder(Flow).decode(form) == flow else None
    except (ValueError, OverflowError):
        return None


def flow_from_form(form: bytes, digest: str) -> Flow | None:
    """Return the flow of a form, or None if its digest differs or a type of a package has changed."""
    try:
        flow = decoder(Flow).decode(form)
    except msgspec.DecodeError:
        return None
    if flow.digest != digest or any(package_of(kind) != own for kind, own in flow.packages.items()):
        return None
    # The types of packages must accept their configurations.
    theirs = (node for nodes in flow.lists.values() for node in nodes.nodes if node.type in flow.packages)
    return None if any(node_types()[node.type].check(node.config) for node in theirs) else flow
