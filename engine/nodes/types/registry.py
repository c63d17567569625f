"""The registry of node types: sayso's own, those of installed packages, and those that a program made with `@node`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from engine.language.codec import Json
from engine.nodes.types import installed
from engine.nodes.types.installed import BadNodeType
from engine.nodes.types.spec import UNKNOWN_WORK, Mode, NodeSpec, OwnSpec, ask

TYPES: Mapping[str, Mode] = {
    "ask": "prompt",
    "approval": "prompt",
    "message": "delivery",
    "shell": "run",
    "http": "run",
    "python": "run",
    "set": "pure",
    "wait": "timer",
    "foreach": "container",
    "loop": "container",
    "parallel": "container",
    "switch": "container",
    "flow": "container",
    "agent": "container",
    "fail": "pure",
    "noop": "pure",
}
"""sayso's own types in the order of the flow reference, each with who does its work. The module of that name has its
`SPEC`; it is loaded by the first node of the type, since loading all of them is a large part of a start."""

INTERNAL: Mapping[str, Mode] = {"turn": "run", "mcp": "run", "read_file": "run", "write_file": "run"}
"""What conversations are made of. The registry knows them by name and lists them nowhere."""


@cache
def _sayso_spec(name: str, mode: Mode) -> NodeSpec:
    spec: NodeSpec = import_module(f"engine.nodes.types.{name}").SPEC
    return replace(spec, name=name, mode=mode)


class _NotInstalled:
    """The config of a type that is not installed: nothing can be asked of it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        raise BadNodeType(
            f"the node type `{self._name}` is not installed here, so what it takes is not known"
        )


class _Registry(Mapping[str, NodeSpec]):
    """sayso's own types, and those of others, which are looked for only when they are needed."""

    def __getitem__(self, name: str) -> NodeSpec:
        mode = TYPES.get(name) or INTERNAL.get(name)
        if mode is not None:
            return _sayso_spec(name, mode)
        try:
            return installed.own_type(name)
        except BadNodeType as error:
            raise KeyError(name) from error

    def __iter__(self) -> Iterator[str]:
        yield from TYPES
        for name in installed.names():
            if name not in TYPES and name not in INTERNAL and unusable_type(name) is None:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)


_REGISTRY = _Registry()


def node_types() -> Mapping[str, NodeSpec]:
    """All node types by name, in the order of the flow reference, then those of others.

    Internal types are found by name, and are not listed.
    """
    return _REGISTRY


def spec_of(name: str) -> NodeSpec:
    """The type of that name; for one that is not installed what holds for all types of packages."""
    return node_types().get(name) or absent_spec(name)


@cache
def absent_spec(name: str) -> NodeSpec:
    """What stands in for a type that is not installed: it is run by a process, and may do anything."""
    config: Any = _NotInstalled(name)
    return NodeSpec(name=name, config=config, on_crash=ask, any_output=True, uninspectable=UNKNOWN_WORK)


def mode_of(name: str) -> Mode:
    """The mode of a type, whether it is installed or not: all types but sayso's own are run by a process."""
    return TYPES.get(name, "run")


def code_key(name: str, with_: Json) -> str | None:
    """The code of its own that a node runs, as its flow names it: a module, or a relative path; None without any."""
    return spec_of(name).code(with_) if isinstance(with_, Mapping) else None


def package_of(name: str) -> str | None:
    """The package that brings the type of that name; None for a type of sayso itself, or where there is none."""
    spec = node_types().get(name)
    return spec.package if isinstance(spec, OwnSpec) else None


def unusable_type(name: str) -> str | None:
    """Why the type of that name of an installed package cannot be used; None when it can, or when there is none."""
    try:
        installed.own_type(name)
    except KeyError:
        return None
    except BadNodeType as error:
        return str(error)
    return None
