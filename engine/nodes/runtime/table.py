"""The table of runners by node type: each is loaded by the first node that needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from engine.language.codec import Json
from engine.nodes.runtime.runner import NodeContext, Outcome, Refusal, Runner
from engine.nodes.runtime.secrets import Resolver, redacted
from engine.nodes.runtime.user_code import Context, supervise
from engine.nodes.types.registry import own_type
from engine.nodes.types.spec import OwnSpec


def runners() -> Mapping[str, Runner]:
    """The runners of the node types that have effects, by type, each made when it is needed."""
    return _Runners()


def _loaded(where: str) -> Runner:
    """A runner that is loaded by the first node that needs it: that for requests alone, with its library, is as large as
    the rest of sayso."""
    module, _, name = where.partition(":")

    async def run(config: dict[str, Json], ctx: NodeContext) -> Outcome:
        runner: Runner = getattr(import_module(f"engine.nodes.runtime.{module}"), name or module)
        return await runner(config, ctx)

    return run


def _own_runner(kind: OwnSpec) -> Runner:
    """The runner of a type."""

    async def run(config: dict[str, Json], ctx: NodeContext) -> Outcome:
        resolver = Resolver(ctx.secret)
        try:
            given = {
                name: resolver.json(value, name) if name in kind.secret_fields else value
                for name, value in config.items()
            }
        except Refusal as refusal:
            return refusal.outcome

        async def work(context: Context) -> Json:
            return await kind.instance.run(kind.given(given), context)

        outcome = await supervise(kind.name, work, ctx)
        return redacted(outcome, resolver.redactor()) if resolver.used else outcome

    return run


def with_runner(runners: Mapping[str, Runner], name: str, runner: Runner) -> Mapping[str, Runner]:
    """The runners with one more, unless there is one for that type already."""
    return _With(runners, {} if name in list(runners) else {name: runner})


class _With(Mapping[str, Runner]):
    """Asked for a type that is not there yet, the first may still find it among those of installed packages."""

    def __init__(self, first: Mapping[str, Runner], more: Mapping[str, Runner]) -> None:
        self._first, self._more = first, more

    def __getitem__(self, name: str) -> Runner:
        return self._more[name] if name in self._more else self._first[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._first
        yield from self._more

    def __len__(self) -> int:
        return len(self._first) + len(self._more)


_PLACES = {
    "shell": "shell",
    "http": "http",
    "python": "python",
    "read_file": "files:read_file",
    "write_file": "files:write_file",
    "call": "call",
}
"""Runners of sayso's own types, as `module` or `module:function` of `engine.nodes.runtime`. Those of model calls and
MCP tools are supplied by the code that assembles the engine, since they need a model or servers."""


class _Runners(Mapping[str, Runner]):
    """Lists sayso's own; those of others are found by name."""

    def __init__(self) -> None:
        self._made: dict[str, Runner] = {}

    def __getitem__(self, name: str) -> Runner:
        if name not in self._made:
            known = _PLACES.get(name)
            self._made[name] = _own_runner(own_type(name)) if known is None else _loaded(known)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        yield from _PLACES

    def __len__(self) -> int:
        return len(_PLACES)
