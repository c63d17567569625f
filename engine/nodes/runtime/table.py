"""The table of runners by node type: each is loaded by the first node that needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from engine.language.codec import Json
from engine.nodes.runtime.installed import own_runner
from engine.nodes.runtime.runner import NodeContext, Outcome, Runner
from engine.nodes.types.installed import own_type
from engine.nodes.types.registry import node_types


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


class _Runners(dict[str, Runner]):
    def __missing__(self, name: str) -> Runner:
        spec = node_types().get(name)
        runner = _loaded(spec.runner) if spec is not None and spec.runner else own_runner(own_type(name))
        return self.setdefault(name, runner)
