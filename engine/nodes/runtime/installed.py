"""Runs node types of installed packages: secrets resolved at the last moment, and taken out of what comes back."""

from __future__ import annotations

from engine.language.codec import Json, encode
from engine.nodes.runtime.runner import NodeContext, Outcome, Refusal, Runner
from engine.nodes.runtime.secrets import Resolver, redacted
from engine.nodes.runtime.user_code import Context, supervise
from engine.nodes.types.spec import OwnSpec


def own_runner(kind: OwnSpec) -> Runner:
    """The runner of a type."""

    async def run(config: dict[str, Json], ctx: NodeContext) -> Outcome:
        resolver = Resolver(ctx.secret)
        try:
            given = {name: _given(kind, name, value, resolver) for name, value in config.items()}
        except Refusal as refusal:
            return refusal.outcome
        redactor = resolver.redactor()

        async def work(context: Context) -> Json:
            return await kind.instance.run(kind.config.model_validate_json(encode(given)), context)

        return redacted(await supervise(kind.name, work, ctx), redactor)

    return run


def _given(kind: OwnSpec, name: str, value: Json, resolver: Resolver) -> Json:
    return resolver.json(value, name) if name in kind.secret_fields else value
