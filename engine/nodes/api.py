"""Public API for authors of node types: a class with a config, registered under the entry points `sayso.nodes`, or a
function or class of the program itself, registered with `@node`.

See docs/own-nodes.md; `examples/own-node` is a package to start from. pydantic is loaded on first use: functions whose
parameters are plain JSON types run without it.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from engine.language.codec import Json
from engine.language.errors import PauseError
from engine.nodes.runtime.python import CTX, GATHERING, call, signature_of
from engine.nodes.runtime.user_code import Context, NodeError
from engine.nodes.types import registry
from engine.nodes.types.plain import fits, is_plain
from engine.nodes.types.registry import INTERNAL, TYPES, BadNodeType

if TYPE_CHECKING:
    from engine.nodes.types.fields import Config
    from engine.nodes.types.fields import Scalar as SecretText

__all__ = ["Config", "Context", "Json", "NodeError", "NodeType", "PauseError", "SecretText", "node"]

Made = TypeVar("Made", bound=Callable[..., Any])


def __getattr__(name: str) -> object:
    from engine.nodes.types import fields

    places = {"Config": fields.Config, "SecretText": fields.Scalar}
    if name not in places:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return places[name]


class NodeType(ABC):
    """A node type. One instance serves all nodes of a process, so it must not keep state between runs.

    The docstring of `config` describes the type in the flow reference and in editors.
    """

    config: ClassVar[type[Config]]
    """Model of the mapping under `with`; sayso evaluates the expressions, validates, and gives `run` an instance."""
    outputs: ClassVar[Mapping[str, str] | None] = None
    """The fields of the output with a sentence each, so that flows are checked against them; None: anybody's guess."""
    on_crash: ClassVar[Literal["again", "ask"]] = "ask"
    """Reaction to an interruption: `again` only if running twice does no harm, else a person is asked."""
    timeout: ClassVar[float | None] = None
    """Seconds that a node may take unless it says otherwise."""
    secret_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields of `config` (of type `SecretText`, or mappings of it) that may contain `{{ secrets.NAME }}`."""
    unknown_output: ClassVar[Mapping[str, Json]] = {}
    """The output when a person says that an interrupted node is done."""

    @abstractmethod
    async def run(self, config: Any, ctx: Context) -> Json:
        """Do the work and return the output, which must be JSON. What it raises fails the node."""


def node(
    name: str,
    *,
    outputs: Mapping[str, str] | None = None,
    on_crash: Literal["again", "ask"] = "ask",
    timeout: float | None = None,
    secret_fields: Iterable[str] = (),
    unknown_output: Mapping[str, Json] | None = None,
) -> Callable[[Made], Made]:
    """Make a function or a class a node type of this process, before a flow that uses it is loaded.

    The parameters of a function are the fields of `with`, with their type hints and defaults; one named `ctx` gets the
    `Context`, and its docstring is what the flow reference says. The other arguments are as in `NodeType`, and are for
    functions: a class, a `NodeType`, says them itself. Raises `BadNodeType`.
    """

    if not isinstance(name, str):
        raise BadNodeType('a node type has a name: write @node("name") above the function')

    def register(made: Made) -> Made:
        if name in TYPES or name in INTERNAL:
            raise BadNodeType(f"`{name}` is a node type of sayso")
        if not callable(made):
            raise BadNodeType(f"`{name}`: a node type is a function or a class, not {made!r}")
        if inspect.isclass(made):
            registry.register(name, made)
            return made
        said = {
            "__module__": made.__module__,
            "__qualname__": made.__qualname__,
            "outputs": outputs,
            "on_crash": on_crash,
            "timeout": timeout,
            "secret_fields": frozenset(secret_fields),
            "unknown_output": unknown_output or {},
        }
        registry.register(name, type(made.__name__, (NodeType,), {**said, **_of_function(name, made)}))
        return made

    return register


class _Later:
    """Placeholder for the model of a function's fields, which is built on first access."""

    __isabstractmethod__ = False
    """Asked of all that a new class has."""

    def __init__(self, name: str, doc: str | None, fields: Mapping[str, Any]) -> None:
        self._name, self.__doc__, self._fields = name, doc, fields

    @cached_property
    def made(self) -> type[Config]:
        """The model. Raises `BadNodeType`."""
        from pydantic import create_model
        from pydantic.errors import PydanticUserError

        from engine.nodes.types.fields import Config

        for field in self._fields:
            if field.startswith("model_") and hasattr(Config, field):
                reason = f"the parameter `{field}` needs another name, which pydantic does not use"
                raise BadNodeType(f"`{self._name}`: {reason}")
        try:
            return create_model(f"{self._name}_config", __base__=Config, __doc__=self.__doc__, **self._fields)
        except (NameError, PydanticUserError) as error:
            raise BadNodeType(f"`{self._name}` cannot be a node type: {error}") from error

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.made, attribute)


def _of_function(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the config and `run` of the type made from a function. If the hints are plain, `_plain` has them with the
    defaults, and the model is built on first access."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadNodeType(f"`{name}`: a generator has no output; use `return` instead of `yield`")
    try:
        signature, hints = signature_of(function)
    except NodeError as error:
        raise BadNodeType(f"`{name}` cannot be a node type: {error}") from error
    fields: dict[str, tuple[Any, Any]] = {}
    for each in signature.parameters.values():
        if each.kind in (*GATHERING, each.POSITIONAL_ONLY) or each.name.startswith("_"):
            raise BadNodeType(f"`{name}`: the parameter `{each.name}` has no name in a flow")
        fields[each.name] = hints.get(each.name, Any), ... if each.default is each.empty else each.default
    takes_ctx = fields.pop(CTX, None) is not None
    config = _Later(name, inspect.getdoc(function), fields)
    plain = all(
        is_plain(hint) and (default is ... or fits(hint, default)) and not field.startswith("model_")
        for field, (hint, default) in fields.items()
    )

    async def run(self: NodeType, config: Any, ctx: Context) -> Json:
        given: dict[str, Any] = {CTX: ctx} if takes_ctx else {}
        return await call(function, **given, **{field: getattr(config, field) for field in fields})

    if plain:
        return {"config": config, "_plain": fields, "run": run}
    return {"config": config.made, "run": run}
