"""Registry of node types: sayso's own, those that installed packages name under the entry points `sayso.nodes`, and
those that a program makes with `@node` (`engine.nodes.api`).

Packages are searched only when a flow uses a type that sayso does not have, or when all types are listed (a schema, a
hint). To know a type's fields, its package has to be imported: that happens while a flow is being read. A type that
cannot be used is noted with the reason and does not affect the others.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.nodes.types.names import MAX_NAME, NAME, RESERVED_WORDS
from engine.nodes.types.spec import UNKNOWN_WORK, Mode, NodeSpec, OwnSpec, again, ask

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


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
    "end": "pure",
    "fail": "pure",
    "noop": "pure",
}
"""sayso's own types in the order of the flow reference, each with its mode. The module of that name has its `SPEC`; it
is loaded by the first node of the type, since loading all of them is a large part of a start."""

FAIL = "fail"
END = "end"
"""Type whose nodes end their list successfully."""

INTERNAL: Mapping[str, Mode] = {
    "turn": "run",
    "mcp": "run",
    "read_file": "run",
    "write_file": "run",
    "remember": "pure",
    "call": "run",
}
"""Types used inside conversations and for calls of external agents. The registry finds them by name but never lists
them."""


@cache
def _sayso_spec(name: str, mode: Mode) -> NodeSpec:
    spec: NodeSpec = import_module(f"engine.nodes.types.{name}").SPEC
    return replace(spec, name=name, mode=mode)


class _NotInstalled:
    """Config of a type that is not installed; any access to it fails."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        raise BadNodeType(
            f"the node type `{self._name}` is not installed here, so its settings cannot be checked"
        )


class _Registry(Mapping[str, NodeSpec]):
    """sayso's own types, and those of others, which are looked for only when they are needed."""

    def __getitem__(self, name: str) -> NodeSpec:
        mode = TYPES.get(name) or INTERNAL.get(name)
        if mode is not None:
            return _sayso_spec(name, mode)
        try:
            return own_type(name)
        except BadNodeType as error:
            raise KeyError(name) from error

    def __iter__(self) -> Iterator[str]:
        yield from TYPES
        for name in names():
            if name not in TYPES and name not in INTERNAL and unusable_type(name) is None:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)


_REGISTRY = _Registry()


def node_types() -> Mapping[str, NodeSpec]:
    """Return all node types by name, in the order of the flow reference, then those of packages.

    Internal types are found by name, and are not listed.
    """
    return _REGISTRY


def spec_of(name: str) -> NodeSpec:
    """Return the type of that name; if it is not installed, a spec that holds for all types of packages."""
    return node_types().get(name) or absent_spec(name)


@cache
def absent_spec(name: str) -> NodeSpec:
    """Return a placeholder for a type that is not installed: it is run by a process, and may do anything."""
    config: Any = _NotInstalled(name)
    return NodeSpec(name=name, config=config, on_crash=ask, any_output=True, uninspectable=UNKNOWN_WORK)


def mode_of(name: str) -> Mode:
    """The mode of a type, whether it is installed or not: all types but sayso's own are run by a process."""
    return TYPES.get(name) or INTERNAL.get(name, "run")


def code_key(name: str, with_: Json) -> str | None:
    """The code of its own that a node runs, as its flow names it: the module of a `python` node, or the program of a `shell`
    node that a relative path names; None without any."""
    if not isinstance(with_, Mapping):
        return None
    if name == "python":
        call = with_.get("call")
        return call.partition(":")[0] if isinstance(call, str) else None
    run = with_.get("run") if name == "shell" else None
    program = run[0] if isinstance(run, list) and run else None
    if not isinstance(program, str) or "/" not in program or program.startswith("/") or "{{" in program:
        return None
    return program


def package_of(name: str) -> str | None:
    """Return the package that provides the type of that name; None for sayso's own types and unknown ones."""
    spec = node_types().get(name)
    return spec.package if isinstance(spec, OwnSpec) else None


def unusable_type(name: str) -> str | None:
    """Return why an installed package's type of that name cannot be used; None if it can, or is not installed."""
    try:
        own_type(name)
    except KeyError:
        return None
    except BadNodeType as error:
        return str(error)
    return None


# --- installed packages ------------------------------------------------------------------------------------


GROUP = "sayso.nodes"


class BadNodeType(SaysoError):
    """A node type of an installed package cannot be used; says which package, and why."""

    code = "node_type"


_types: dict[EntryPoint, OwnSpec | BadNodeType] = {}
"""Loaded types. Two threads may load one at the same time; the first one counts."""


_made: dict[str, OwnSpec] = {}
"""The types that this program made itself."""
IN_PROCESS = "@node"
"""Stands in place of a package name for types of this process."""


@cache
def _found() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # most processes look for none

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def names() -> list[str]:
    """The names of all types of others, whether they can be used or not."""
    return sorted({**_found(), **_made})


def own_type(name: str) -> OwnSpec:
    """Return the type of that name. Raises `KeyError` if it does not exist, and `BadNodeType`."""
    if name in _made:
        return _made[name]
    entry = _found()[name]
    found = _types.get(entry) or _types.setdefault(entry, _load(entry))
    if isinstance(found, BadNodeType):
        raise found
    return found


def register(name: str, kind: type) -> None:
    """Register a class as a node type of this process. Raises `BadNodeType`."""
    other = type(_made[name].instance) if name in _made else kind
    same = (other.__module__, other.__qualname__) == (kind.__module__, kind.__qualname__)
    _refuse(not same, f"there is already a node type `{name}`, {other.__module__}.{other.__qualname__}")
    _made[name] = _checked(name, IN_PROCESS, kind)


def why_missing(name: str, package: str) -> str:
    """Return why a node type that a session's flow uses is unavailable."""
    if package == IN_PROCESS:
        return f"the node type `{name}` is made with `@node`, in a module that was not imported here"
    return f"the node type `{name}` of the package {package} is not installed here"


def forget() -> None:
    """Look up installed packages again, and forget the types of this program."""
    _found.cache_clear()
    _types.clear()
    _made.clear()


def _load(entry: EntryPoint) -> OwnSpec | BadNodeType:
    package = entry.dist.name if entry.dist is not None else entry.value
    try:
        return _checked(entry.name, package, entry.load())
    except (Exception, SystemExit) as error:
        reason = str(error) if isinstance(error, BadNodeType) else f"{type(error).__name__}: {error}"
        return BadNodeType(f"the node type `{entry.name}` of the package {package} cannot be used: {reason}")


def _checked(name: str, package: str, kind: Any) -> OwnSpec:
    _refuse(not NAME.fullmatch(name) or len(name) > MAX_NAME, f"{name!r} is not a valid type name")
    _refuse(name in RESERVED_WORDS, f"`{name}` is a reserved word of the flow language")
    _refuse(not inspect.isclass(kind), f"the entry point must name a class, not {kind!r}")
    config: Any = getattr(kind, "config", None)
    plain: Mapping[str, tuple[Any, Any]] | None = getattr(kind, "_plain", None)
    if plain is None:
        from engine.nodes.types.fields import Config  # with pydantic, which few processes need

        sound = inspect.isclass(config) and issubclass(config, Config)
        _refuse(not sound, "its `config` must be a subclass of engine.nodes.api.Config")
        known = {*config.model_fields, *(each.alias for each in config.model_fields.values())}
    else:
        known = {*plain}
    _refuse(not inspect.iscoroutinefunction(getattr(kind, "run", None)), "its `run` must be an `async def`")
    on_crash = getattr(kind, "on_crash", "ask")
    _refuse(on_crash not in ("again", "ask"), f"`on_crash` must be `again` or `ask`, not {on_crash!r}")
    outputs = getattr(kind, "outputs", None)
    _refuse(not isinstance(outputs, Mapping | None), "`outputs` must be fields with a sentence each")
    timeout = getattr(kind, "timeout", None)
    _refuse(
        not (timeout is None or (isinstance(timeout, int | float) and timeout > 0)),
        f"`timeout` must be a number of seconds above 0, not {timeout!r}",
    )
    secret_fields = frozenset(getattr(kind, "secret_fields", ()))
    unknown = sorted(secret_fields - known)
    _refuse(bool(unknown), f"`secret_fields` names {', '.join(unknown)}, which `config` does not have")
    return OwnSpec(
        name=name,
        package=package,
        instance=kind(),
        config=config,
        plain=plain,
        outputs=outputs or {},
        any_output=outputs is None,
        on_crash=again if on_crash == "again" else ask,
        timeout=timeout,
        secret_fields=secret_fields,
        unknown_output=dict(getattr(kind, "unknown_output", {})),
        uninspectable=UNKNOWN_WORK,
    )


def _refuse(wrong: bool, reason: str) -> None:
    if wrong:
        raise BadNodeType(reason)
