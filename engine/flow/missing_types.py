"""Node types that a session's flow uses and that cannot be used here: their package was uninstalled, or is broken. Pure.

A session pins which packages its types came from (`Flow.packages`), and reading its text notes which of them are not to
be had now (`Flow.absent`). Such a session can be looked at, answered, paused, aborted and migrated like any other. A
node of such a type is not launched when its turn comes: it is recorded as interrupted, and a person is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from engine.nodes.types.installed import BadNodeType, own_type
from engine.nodes.types.registry import node_types, unusable_type
from engine.nodes.types.spec import Model, NodeSpec, OwnSpec

MISSING = "missing"
"""Why a node was not launched whose type cannot be used here: it waits until a person says how to go on."""


def spec_of(name: str) -> NodeSpec:
    """The type of that name; for one that is not installed what holds for all types of packages."""
    try:
        return node_types()[name]
    except KeyError:
        return absent_spec(name)


@cache
def absent_spec(name: str) -> NodeSpec:
    """What stands in for a type that is not installed: it is run by a process, and may do anything."""
    return NodeSpec(name, _no_config(name), {}, mode="run", on_crash=lambda with_: "ask", any_output=True)


def _no_config(name: str) -> Callable[[], Model]:
    def load() -> Model:
        raise BadNodeType(f"the node type `{name}` is not installed here, so what it takes is not known")

    return load


def package_of(name: str) -> str | None:
    """The package that brings the type of that name; None for a type of sayso itself, or where there is none."""
    return own_type(name).package if isinstance(node_types().get(name), OwnSpec) else None


def why_absent(name: str, package: str) -> str:
    """Why a type that a package brought cannot be used, for people."""
    return unusable_type(name) or f"the node type `{name}` of the package {package} is not installed here"
