"""The `python` node: a function of the user's."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from engine.language.codec import Json
from engine.language.diagnostics import Fault, Path, suggest
from engine.language.template import has_expression
from engine.nodes.types.fields import Callable_, Config
from engine.nodes.types.preview import as_json
from engine.nodes.types.spec import Known, NodeSpec, ask
from engine.types.annotations import Function, Sources, function_of
from engine.types.lattice import ANY, MISSING, NULL, TEXT, Type, shown, words
from engine.types.pieces import Record, type_of

_ARGUMENT = re.compile(r"[A-Za-z]\w*", re.ASCII)


class PythonConfig(Config):
    """Calls a Python function. Its return value, which must be JSON, is the output.

    An `async` function is awaited; others run in a thread. The module is imported when the node runs.
    """

    call: Callable_
    """`module:function`, literal."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Its arguments, by name."""

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Arguments have names that Python takes."""
        args = raw.get("args")
        for name in args if isinstance(args, dict) else ():
            usable = _ARGUMENT.fullmatch(name) and not keyword.iskeyword(name)
            if not usable and not has_expression(name):
                yield Fault(("args", name), f"{name[:80]!r} is not a valid argument name", on_key=True)


def _output(known: Known) -> Type:
    """Return the output type from the function's type hints."""
    call = known.with_.get("call")
    function = function_of(call, known.sources) if isinstance(call, str) else None
    return function.returns if isinstance(function, Function) else ANY


def _preview(config: Mapping[str, Json]) -> Iterator[str]:
    yield f"python {config['call']}"
    for name, value in (config.get("args") or {}).items():
        yield f"{name}: {as_json(value)}"


def _fits(node: Mapping[str, Any], record: Record, sources: Sources) -> Iterator[Fault]:
    """Arguments are those that the function takes."""
    with_ = node.get("with")
    if not isinstance(with_, dict):
        return
    call = with_.get("call")
    args = with_["args"] if isinstance(with_.get("args"), dict) else {}
    found = function_of(call, sources) if isinstance(call, str) and not has_expression(call) else None
    if isinstance(found, str):
        yield Fault(("with", "call"), found)
    if not isinstance(found, Function):
        return
    for name, value in args.items():
        if name in found.takes:
            yield from _argument(name, type_of(value, ("with", "args", name), record), found.takes[name])
        elif not found.takes_more:
            hint = suggest(name, found.takes, None if found.takes else "it takes none")
            yield Fault(
                ("with", "args", name), f"`{call}` takes no argument `{name[:80]}`", hint, on_key=True
            )
    for name in sorted(found.needed - args.keys()):
        yield Fault(("with",), f"`{call}` needs the argument `{name}`", "write it under `args`")


def _argument(name: str, given: Type, takes: Type) -> Iterator[Fault]:
    if given.unknown or takes.unknown or not given.kinds & ~MISSING:
        return
    path: Path = ("with", "args", name)
    if not given.kinds & takes.kinds:
        yield Fault(path, f"this gives {words(given)}, and `{name}` is {words(takes)}")
    elif given.nullable and not takes.kinds & NULL:
        because = f" ({given.why})" if given.why else ""
        yield Fault(
            path, f"this may be null{because}, and `{name}` is {words(takes)}", "guard it with `default`"
        )
    elif given.kinds == TEXT and given.values and takes.values and not given.values & takes.values:
        told = " or ".join(map(shown, sorted(given.values, key=str)))
        yield Fault(path, f"this gives {told}, and `{name}` is {words(takes)}")


SPEC = NodeSpec(
    config=PythonConfig,
    any_output=True,
    output=_output,
    on_crash=ask,
    preview=_preview,
    previewed=frozenset({"call", "args"}),
    uninspectable="what the function does with that",
    verbatim_fields=frozenset({"call"}),
    static_fields=frozenset({"call"}),
    fits=_fits,
)
