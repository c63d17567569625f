"""Types of Python functions, from the text of their modules. Nothing is imported: `validate` executes nothing."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from engine.types.lattice import (
    ANY,
    FLAG,
    FREE_MAPPING,
    NONE,
    NUMBERS,
    TEXTS,
    Type,
    list_of,
    mapping_of,
    of_value,
    union,
)

Sources: TypeAlias = Callable[[str], str | None]
"""Source of the text of a module by its name; None if it cannot be found."""


def no_source(module: str) -> str | None:
    """Return None: there is no folder to look in."""
    return None


class Function(NamedTuple):
    """Signature of a function: parameters by name, the required ones, True if it takes more, and the return type."""

    takes: Mapping[str, Type]
    needed: frozenset[str]
    takes_more: bool
    returns: Type


_PLAIN: Mapping[str, Type] = {
    "str": TEXTS,
    "int": NUMBERS,
    "float": NUMBERS,
    "bool": FLAG,
    "None": NONE,
    "list": list_of(None),
    "dict": FREE_MAPPING,
}
_LISTS = ("list", "List", "Sequence", "Iterable", "tuple", "Tuple")
_MAPPINGS = ("dict", "Dict", "Mapping")
_MOST_DEPTH = 12


class Module(NamedTuple):
    """Readable definitions of a module."""

    functions: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]
    classes: Mapping[str, ast.ClassDef]
    complete: bool
    """True if it can have no other functions: no import or assignment at its top adds any."""


def function_of(call: str, sources: Sources) -> Function | str | None:
    """Return the function that `module:function` names, or a text that says why there is none. None if that cannot be
    known."""
    name, _, wanted = call.partition(":")
    text = sources(name)
    module = None if text is None else _module(text)
    if module is None:
        return None
    found = module.functions.get(wanted)
    if found is None:
        return f"the module `{name}` has no function `{wanted}`" if module.complete else None
    if found.decorator_list:
        return None
    given = found.args
    named = [*given.args, *given.kwonlyargs]
    without = len(given.args) - len(given.defaults)
    needed = {each.arg for each in given.args[:without]}
    needed |= {
        each.arg for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None
    }
    takes = {each.arg: _annotated(each.annotation, module) for each in named if each.arg != "ctx"}
    more = given.kwarg is not None or bool(given.posonlyargs)
    return Function(takes, frozenset(needed & takes.keys()), more, _annotated(found.returns, module))


@lru_cache(maxsize=64)
def _module(text: str) -> Module | None:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    classes: dict[str, ast.ClassDef] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = node
    simple = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.Expr)
    return Module(functions, classes, all(isinstance(node, simple) for node in tree.body))


def _annotated(node: ast.expr | None, module: Module, depth: int = 0) -> Type:
    """Return the type of an annotation; `ANY` if unknown."""
    if node is None or depth > _MOST_DEPTH:
        return ANY
    if isinstance(node, ast.Constant):
        if node.value is None:
            return NONE
        try:
            return _annotated(ast.parse(str(node.value), mode="eval").body, module, depth + 1)
        except (SyntaxError, ValueError):
            return ANY
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return union([_annotated(node.left, module, depth + 1), _annotated(node.right, module, depth + 1)])
    if isinstance(node, ast.Subscript):
        return _parametrised(node, module, depth)
    name = _name(node)
    if name in module.classes:
        return _record(module.classes[name], module, depth)
    return _PLAIN.get(name, ANY)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _parametrised(node: ast.Subscript, module: Module, depth: int) -> Type:
    name = _name(node.value)
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Literal":
        values = [part.value for part in parts if isinstance(part, ast.Constant)]
        plain = len(values) == len(parts) and not any(isinstance(value, bytes) for value in values)
        return union(map(of_value, values)) if plain else ANY
    inner = [_annotated(part, module, depth + 1) for part in parts]
    if name in ("Optional", "Union"):
        return union([*inner, *([NONE] if name == "Optional" else [])])
    if name in ("tuple", "Tuple"):
        return list_of(union(each for each in inner if each.kinds))
    if name in _LISTS:
        return list_of(inner[0])
    if name in _MAPPINGS and len(inner) == 2:
        return mapping_of({}, rest=inner[1])
    return inner[0] if name in ("Annotated", "Required") else ANY


def _record(node: ast.ClassDef, module: Module, depth: int) -> Type:
    """Return the type of a `TypedDict` of the same module; other classes are not JSON."""
    bases = [_name(base) for base in node.bases]
    if bases != ["TypedDict"] or any(each.arg == "total" for each in node.keywords):
        return ANY
    return mapping_of(
        {
            each.target.id: _annotated(each.annotation, module, depth + 1)
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
    )
