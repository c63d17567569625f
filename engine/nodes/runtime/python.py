"""The `python` node: calls a function of the user's, with arguments checked against its type hints.

`module:function` is found as Python finds modules, and beside the flow file. An `async` function is awaited, any
other runs in a thread of its own. A parameter named `ctx` gets an `engine.nodes.runtime.user_code.Context`. A module is loaded
once in the life of a process; a change of its file is noticed and logged, and counts after a restart.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import logging
import os
import sys
import threading
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from engine.language.codec import Json, copy, encode
from engine.language.diagnostics import Fault, faults_of, suggest
from engine.language.errors import PauseError
from engine.nodes.runtime.effects import before_effect
from engine.nodes.runtime.runner import NodeContext, Outcome
from engine.nodes.runtime.user_code import Context, NodeError, in_thread, supervise
from engine.nodes.types.plain import fits, is_plain
from engine.nodes.types.spec import sentence

if TYPE_CHECKING:
    from pydantic import TypeAdapter

CTX = "ctx"
"""The parameter that is sayso's and not the flow's."""

_loading = threading.Lock()
_digests: dict[str, str] = {}
"""Digests of files as first loaded, by path."""
_looked: dict[str, tuple[int, int]] = {}
"""Time and size of files when last compared, by path."""
_modules: dict[tuple[str, Path | None], ModuleType] = {}
"""Loaded modules, by name and folder of the flow file."""

_log = logging.getLogger("sayso.node")


async def python(config: dict[str, Json], ctx: NodeContext) -> Outcome:
    """Call a function: `call`, and `args` by name. See the module."""
    name: str = config["call"]

    async def work(context: Context) -> Json:
        def prepared() -> tuple[Callable[..., Any], inspect.BoundArguments]:
            function = load(name, ctx.flow_dir)
            return function, bind(function, config.get("args") or {}, context)

        function, arguments = prepared() if _is_loaded(name, ctx.flow_dir) else await in_thread(prepared)
        # No effect so far: the node can leave without asking people.
        if context.aborted:
            raise PauseError(context.saved)
        await before_effect()
        return await call(function, *arguments.args, **arguments.kwargs)

    return await supervise(name, work, ctx)


async def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return a function's result: `async` functions are awaited, others run in a thread of their own."""
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    called = getattr(inner, "__call__", None)  # noqa: B004 - what is awaited is what it returns when called
    if inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(called):
        return await function(*args, **kwargs)
    result = await in_thread(lambda: function(*args, **kwargs))
    return await result if inspect.isawaitable(result) else result


# --- finding the function --------------------------------------------------------------------------------


def load(call: str, folder: Path | None) -> Callable[..., Any]:
    """The function that `module:function` names; `folder` is that of the flow file. Raises `NodeError`."""
    name, _, wanted = call.partition(":")
    module = _module(name, folder)
    function = getattr(module, wanted, None)
    if function is None:
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise NodeError(
            _hinted(f"module {name} has no function {wanted}", suggest(wanted, names)), "not_found"
        )
    if not callable(function):
        kind = type(function).__name__
        raise NodeError(f"{call} is a {kind}, not a function", "not_found")
    return typing.cast(Callable[..., Any], function)


def _is_loaded(call: str, folder: Path | None) -> bool:
    """True if the module is here already: importing one takes its time, and may do anything."""
    name = call.partition(":")[0]
    module = _modules.get((name, folder))
    return module is not None and sys.modules.get(name) is module


def _module(name: str, folder: Path | None) -> ModuleType:
    if _is_loaded(name, folder):
        module = _modules[name, folder]
        _watch(name, getattr(module, "__file__", None))
        return module
    files: tuple[Path, ...] = ()
    if folder is not None:
        place = folder.resolve().joinpath(*name.split("."))
        files = (place / "__init__.py", place.with_name(place.name + ".py"))
    beside = next((file for file in files if file.is_file()), None)
    with _loading:
        if beside is not None and folder is not None and str(folder.resolve()) not in sys.path:
            # Last, so that a file beside a flow never takes the place of a module that others use.
            sys.path.append(str(folder.resolve()))
        importlib.invalidate_caches()
        try:
            module = importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise _not_imported(name, folder, error) from error
    file = getattr(module, "__file__", None)
    if beside is not None and (file is None or Path(file).resolve() != beside):
        raise NodeError(
            f"module {name} beside the flow file ({beside}) is hidden by another module of that name "
            f"({file or 'built in'}); rename the one beside the flow file",
            "import",
        )
    _watch(name, file)
    _modules[name, folder] = module
    return module


def _not_imported(name: str, folder: Path | None, error: BaseException) -> NodeError:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and (missing == name or name.startswith(f"{missing}.")):
        known = [file.stem for file in folder.glob("*.py")] if folder is not None else []
        where = f" nor beside the flow file ({folder})" if folder is not None else ""
        text = (
            f"there is no module {missing}, neither on Python's path{where}"
            if where
            else (f"there is no module {missing} on Python's path")
        )
        return NodeError(_hinted(text, suggest(missing, known, "")), "not_found")
    return NodeError(f"module {name} cannot be imported: {type(error).__name__}: {error}", "import")


def _hinted(text: str, hint: str | None) -> str:
    return f"{text}; {hint}" if hint else text


def _watch(name: str, file: str | None) -> None:
    """Note which text of a module runs, and say when its file says something else by now."""
    if file is None or not file.endswith(".py"):
        return
    try:
        stat = os.stat(file)
        if _looked.get(file) == (stat.st_mtime_ns, stat.st_size):
            return
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return
    _looked[file] = stat.st_mtime_ns, stat.st_size
    first = _digests.setdefault(file, digest)
    _log.debug("module %s is %s, sha256 %s", name, file, first)
    if first != digest:
        text = "module %s has changed since it was loaded (%s); restart sayso to run the new one"
        _log.warning(text, name, file)


# --- its arguments ---------------------------------------------------------------------------------------


def bind(function: Callable[..., Any], args: Mapping[str, Json], context: Context) -> inspect.BoundArguments:
    """Bind the arguments, each checked and converted to its type hint.

    Raises `NodeError` that lists all faults.
    """
    try:
        described = _known_parameters(function)
    except TypeError:  # an object that cannot be hashed
        described = _Parameters(*signature_of(function), {})
    parameters = described.signature.parameters
    rest = next((p.name for p in parameters.values() if p.kind is p.VAR_KEYWORD), None)
    values: dict[str, Any] = {CTX: context} if _takes_ctx(parameters) else {}
    extra: dict[str, Any] = {}
    faults = list(_misfits(parameters, args, takes_any=rest is not None))
    for name, value in args.items():
        if name == CTX and _takes_ctx(parameters):
            continue
        known = name in parameters and parameters[name].kind not in GATHERING
        checked = _checked(name, value, described, name if known else rest or "", faults)
        (values if known else extra)[name] = checked
    if faults:
        raise NodeError("; ".join(map(sentence, faults)), "args")
    if rest is not None and extra:
        values[rest] = extra
    ordered = {name: values[name] for name in parameters if name in values}
    return inspect.BoundArguments(described.signature, ordered)


@dataclass(frozen=True)
class _Parameters:
    """Signature of a function: inspected once, used at each call."""

    signature: inspect.Signature
    hints: dict[str, Any]
    checks: dict[str, TypeAdapter[Any]]
    """Validators by parameter, built on demand."""


@functools.lru_cache(1_000)
def _known_parameters(function: Callable[..., Any]) -> _Parameters:
    return _Parameters(*signature_of(function), {})


def signature_of(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """The parameters of a function, and their type hints by name. Raises `NodeError`."""
    try:
        signature = inspect.signature(function)
        target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        hints = typing.get_type_hints(target, include_extras=True) if not inspect.isclass(function) else {}
    except (TypeError, ValueError, NameError, AttributeError) as error:
        raise NodeError(f"the signature of the function cannot be read: {error}", "args") from error
    return signature, hints


GATHERING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
"""The kinds of parameters that take any number of arguments."""


def _takes_ctx(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return CTX in parameters and parameters[CTX].kind not in GATHERING


def _misfits(
    parameters: Mapping[str, inspect.Parameter], args: Mapping[str, Json], *, takes_any: bool
) -> Iterator[Fault]:
    """Arguments that are given and not taken, and the other way round."""
    names = [p.name for p in parameters.values() if p.kind not in GATHERING and p.name != CTX]
    if CTX in args and _takes_ctx(parameters):
        yield Fault(("args", CTX), "sayso passes `ctx`, not the flow", "leave it out")
    for name in args:
        if name not in names and name != CTX and not takes_any:
            hint = suggest(name, names) or ("it takes none" if not names else None)
            yield Fault(("args", name), "the function takes no such argument", hint)
    for name in names:
        if parameters[name].default is inspect.Parameter.empty and name not in args:
            yield Fault(("args",), f"`{name}` is missing")


def _checked(name: str, value: Json, known: _Parameters, parameter: str, faults: list[Fault]) -> Any:
    """Convert the value to its type hint. JSON's own types are not converted: the text `3` is not a number."""
    hint = known.hints.get(parameter, Any)
    if is_plain(hint) and fits(hint, value):
        return copy(value)
    from pydantic import BaseModel, TypeAdapter, ValidationError  # which few functions need
    from pydantic.errors import PydanticUserError

    try:
        if parameter not in known.checks:
            known.checks[parameter] = TypeAdapter(hint)
        return known.checks[parameter].validate_json(encode(value), strict=True)
    except ValidationError as error:
        faults += [fault.under(("args", name)) for fault, _ in faults_of(error, BaseModel)]
    except PydanticUserError as error:
        text = f"its type hint {hint!r} cannot be checked: {str(error).splitlines()[0]}"
        faults.append(Fault(("args", name), text, "use a type that JSON can be converted to"))
    return value
