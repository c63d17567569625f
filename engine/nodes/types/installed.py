"""Node types of others: installed packages name them under the entry points `sayso.nodes`, and a program that embeds the
engine makes its own with `@node` (`engine.nodes.api`).

They are looked for when a flow uses a type that sayso does not have, or when all types are listed (a schema, a hint);
whoever uses sayso's own types only never pays for it. To know what a type takes, its package has to be imported:
that happens while a flow is being read. A type that cannot be used is noted with the reason and holds up no other.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from engine.language.errors import SaysoError
from engine.nodes.types.spec import UNKNOWN_WORK, OwnSpec, again, ask

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "sayso.nodes"
MISSING = "missing"
"""Why a node was not launched whose type cannot be used here: it waits until a person says how to go on."""


class BadNodeType(SaysoError):
    """A node type of an installed package cannot be used; says which package, and why."""

    code = "node_type"


_types: dict[EntryPoint, OwnSpec | BadNodeType] = {}
"""What was loaded. Two threads may load one at the same time; the first one counts."""


_made: dict[str, OwnSpec] = {}
"""The types that this program made itself."""
IN_PROCESS = "@node"
"""What stands in the place of their package."""


@cache
def _found() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # most processes look for none

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def names() -> list[str]:
    """The names of all types of others, whether they can be used or not."""
    return sorted({**_found(), **_made})


def own_type(name: str) -> OwnSpec:
    """The type of that name. Raises `KeyError` where nobody names it, and `BadNodeType`."""
    if name in _made:
        return _made[name]
    entry = _found()[name]
    found = _types.get(entry) or _types.setdefault(entry, _load(entry))
    if isinstance(found, BadNodeType):
        raise found
    return found


def register(name: str, kind: type) -> None:
    """Make a class a node type of this process. Raises `BadNodeType`."""
    other = type(_made[name].instance) if name in _made else kind
    same = (other.__module__, other.__qualname__) == (kind.__module__, kind.__qualname__)
    _refuse(not same, f"there is a node type `{name}` already, {other.__module__}.{other.__qualname__}")
    _made[name] = _checked(name, IN_PROCESS, kind)


def why_missing(name: str, package: str) -> str:
    """Why a type that a session's flow uses is not to be had."""
    if package == IN_PROCESS:
        return f"the node type `{name}` is made with `@node`, in a module that was not imported here"
    return f"the node type `{name}` of the package {package} is not installed here"


def forget() -> None:
    """Look at what is installed anew, and forget what this program made."""
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
    from engine.nodes.types.fields import MAX_NAME, NAME, RESERVED_WORDS, Config  # most processes check none

    _refuse(not NAME.fullmatch(name) or len(name) > MAX_NAME, f"{name!r} is no name for a type")
    _refuse(name in RESERVED_WORDS, f"`{name}` is a word of the flow language")
    _refuse(not inspect.isclass(kind), f"the entry point must name a class, not {kind!r}")
    config: Any = getattr(kind, "config", None)
    sound = inspect.isclass(config) and issubclass(config, Config)
    _refuse(not sound, "its `config` must be a subclass of engine.nodes.api.Config")
    _refuse(not inspect.iscoroutinefunction(getattr(kind, "run", None)), "its `run` must be an `async def`")
    on_crash = getattr(kind, "on_crash", "ask")
    _refuse(on_crash not in ("again", "ask"), f"`on_crash` must be `again` or `ask`, not {on_crash!r}")
    outputs = getattr(kind, "outputs", None)
    _refuse(not isinstance(outputs, Mapping | None), "`outputs` must be fields with a sentence each")
    timeout = getattr(kind, "timeout", None)
    _refuse(not _is_seconds(timeout), f"`timeout` must be a number of seconds above 0, not {timeout!r}")
    secret_fields = frozenset(getattr(kind, "secret_fields", ()))
    fields = config.model_fields
    unknown = sorted(secret_fields - fields.keys() - {each.alias for each in fields.values()})
    _refuse(bool(unknown), f"`secret_fields` names {', '.join(unknown)}, which `config` does not have")
    return OwnSpec(
        name=name,
        package=package,
        instance=kind(),
        config=config,
        outputs=outputs or {},
        any_output=outputs is None,
        on_crash=again if on_crash == "again" else ask,
        timeout=timeout,
        secret_fields=secret_fields,
        unknown_output=dict(getattr(kind, "unknown_output", {})),
        uninspectable=UNKNOWN_WORK,
    )


def _is_seconds(timeout: object) -> bool:
    return timeout is None or (isinstance(timeout, int | float) and timeout > 0)


def _refuse(wrong: bool, reason: str) -> None:
    if wrong:
        raise BadNodeType(reason)
