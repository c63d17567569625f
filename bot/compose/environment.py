"""The assembly of a process: the machine that it runs on, an engine, node types of installed packages, and the provider
for agents.

Time, chance, the disk and the network come in through `Machine`, so that all of it can be replaced: the simulation in
the tests runs this same bot with its own clock, network and crashes. Slack's libraries are loaded on first use, which
never happens in a process of the terminal; those for models by the first model call.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bot.compose.projections import intents, repairs
from bot.config.directory import Directory
from bot.config.session_files import blobs_of
from bot.config.settings import Settings
from bot.config.tuning import SLACK_PACE, Tuning
from engine.decide.agents.listings import ListingRows
from engine.decide.agents.memory import NoteRows
from engine.decide.agents.spend_projection import SpendRows
from engine.decide.agents.wide_grants import GrantRows
from engine.decide.policy import Gate
from engine.flow import Flow
from engine.flow.load import flow_from_body
from engine.journal.records import Head
from engine.language import timestamps
from engine.language.errors import FlowError, SaysoError, StorageBroken, StorageError
from engine.messages.model_limits import DEFAULT_MODEL, AgentFacts
from engine.models.keys import KEY_VARIABLES
from engine.models.model_turns import ModelTurns
from engine.nodes.runtime.runner import NodeContext, Runner
from engine.nodes.runtime.secrets import SecretSource
from engine.nodes.runtime.table import runners, with_runner
from engine.run.dispatcher import POLL_SECONDS
from engine.run.engine import Engine
from engine.run.executor import Extension, random_text
from engine.run.memory import Public, descriptions, nowhere, places
from engine.run.runtime import ToolServers
from engine.storage.group_commit import Writer
from engine.storage.open import open_store
from engine.storage.store import Store
from prompt_state.question_row import projection

if TYPE_CHECKING:
    import aiohttp

    from engine.messages.prices import Price
    from engine.models.provider import Provider
    from engine.models.turn_runner import SaidIn
    from engine.run.shared_files import SharedFiles

log = logging.getLogger("sayso")


def _keep_what_is_loaded() -> None:
    """Exempt loaded objects from collections, which would only delay acknowledgements."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class Machine:
    """The real one, unless told otherwise."""

    seconds: Callable[[], float] = time.time
    """Seconds since 1970, as the machine's clock has them: it may be set back or forward."""
    steady: Callable[[], float] = time.monotonic
    """Seconds of a clock that only goes forward."""
    entropy: Callable[[], str] = random_text
    session: aiohttp.ClientSession | None = None
    """Through which Slack is reached; None makes one for each request."""
    open_store: Callable[[str, bytes | None, Sequence[bytes]], Store] = open_store
    writer: Callable[[Store], Writer] = Writer
    runners: Callable[[], Mapping[str, Runner]] = runners
    slack_app: Callable[..., Any] | None = None
    """Receiver of everything from Slack; None for the one with Bolt."""
    tuning: Tuning = SLACK_PACE
    poll_seconds: float = POLL_SECONDS
    """Seconds between checks for commits of other processes."""
    started: Callable[[], Any] = _keep_what_is_loaded
    """Done once everything is loaded."""

    @cached_property
    def now(self) -> Callable[[], str]:
        """Return a clock of stored times."""
        return timestamps.clock(self.seconds)


THIS_MACHINE = Machine()


# --- the engine --------------------------------------------------------------------------------------------


def make_engine(
    settings: Settings,
    store: Store,
    gate: Gate,
    *,
    label: str,
    slack: bool,
    machine: Machine = THIS_MACHINE,
    said_in: SaidIn | None = None,
    public: Public = nowhere,
) -> Engine:
    """Return an engine over a store, with the parts that every process needs. `said_in` reads the messages of a thread,
    `public` tells whether everybody here can read a channel."""
    extensions: list[Extension] = [projection]
    if slack:
        from bot.intents.session_rows import mark_rows, slack_intents

        extensions.append(slack_intents)
        if settings.reactions:
            extensions.append(mark_rows)
        if scripted(settings):
            from bot.intents.session_rows import scripted_rows

            extensions.append(scripted_rows)
    extensions += [SpendRows(settings.agents.day_cap), NoteRows(), GrantRows(), ListingRows()]
    source = SecretSource(settings.env, settings.secrets_dir, settings.secret_command)
    servers = ToolServers(settings.mcp_file, source.get, settings.agents.link_hosts)
    read = places(lambda: engine, said_in, public)
    models = ModelTurns(
        settings.env, servers.mcp_tools, scripts(settings), read, descriptions(lambda: engine)
    )
    engine = Engine(
        store,
        policy=gate,
        runners=with_runner(with_runner(machine.runners(), TURN, models), "mcp", servers),
        home=settings.home,
        secret=source.get,
        extensions=extensions,
        label=label,
        snapshot_dir=settings.snapshot_dir,
        files=_shared_files(settings),
        now=machine.now,
        steady=machine.steady,
        entropy=machine.entropy,
        writer=machine.writer(store),
        agents=AgentFacts(
            prices=_prices(settings),
            default_model=settings.agents.model or DEFAULT_MODEL,
            day_capped=settings.agents.day_cap is not None and not scripted(settings),
            listens=settings.agents.listens,
        ),
    )
    engine.sessions.repairs, engine.sessions.intents = repairs, intents
    engine.closing += [models.close, servers.close]
    if traced(settings.env):
        _export_spans(engine, settings.env)
    engine.stepper.manager_of = Directory(settings.people_file, machine.now, machine.steady).manager_of
    return engine


def traced(env: Mapping[str, str]) -> bool:
    """True if spans are to be exported, by the variables that OpenTelemetry documents."""
    if (
        env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        or env.get("OTEL_TRACES_EXPORTER") == "none"
    ):
        return False
    return bool(env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or env.get("OTEL_EXPORTER_OTLP_ENDPOINT"))


def _export_spans(engine: Engine, env: Mapping[str, str]) -> None:
    """Start exporting spans. If that is impossible it is logged, and the engine runs without."""
    try:
        from bot.compose.telemetry import export_spans  # OpenTelemetry, which most do not use

        export_spans(engine, env)
    except ImportError as error:
        log.error("no traces are sent: a package is missing (%s): pip install 'sayso[otel]'", error)
    except Exception as error:
        log.error("no traces are sent; check the variables OTEL_*: %s", error)


def _shared_files(settings: Settings) -> Callable[[Writer], SharedFiles] | None:
    """The folders of sessions where several machines share them."""
    blobs = blobs_of(settings)
    if blobs is None:
        return None
    from engine.run.shared_files import SharedFiles  # most installations are one machine

    return lambda writer: SharedFiles(blobs, writer, settings.home)


def _prices(settings: Settings) -> Mapping[str, Price] | None:
    """The prices that hold where some are configured."""
    if not settings.agents.prices:
        return None
    from engine.messages.prices import prices_from  # most configure none

    return prices_from(dict(settings.agents.prices))


# --- node types of installed packages ----------------------------------------------------------------------


def lacking(store: Store) -> dict[str, list[Head]]:
    """Return the open sessions of a store by the package they miss, as a sentence. Unreadable ones are left out."""
    found: dict[str, list[Head]] = {}
    flows: dict[str, Flow | None] = {}
    for head in store.sessions.heads(statuses=("running", "paused"), limit=None):
        if head.quarantined is not None:
            continue
        if head.flow_digest not in flows:
            flows[head.flow_digest] = None
            with suppress(FlowError, StorageError):
                body = store.flows.text(head.flow_digest)
                if b'"types":' in body:  # reading flows without types of packages would be wasted effort
                    flows[head.flow_digest] = flow_from_body(body)
        flow = flows[head.flow_digest]
        for why in flow.absent.values() if flow is not None else ():
            found.setdefault(why, []).append(head)
    return found


async def look_after(engine: Engine, wants: Callable[[Head], bool]) -> None:
    """Set those of the wanted sessions aside that lack a node type here, and tell their threads."""
    found = await engine.writer.call(lambda: lacking(engine.store))
    for why, heads in found.items():
        log.warning("%s: %d open sessions use it and are put on hold", why, len(heads))
    for session_id in {head.session_id for heads in found.values() for head in filter(wants, heads)}:
        try:
            await engine.apply(session_id, None)
        except StorageBroken:
            raise
        except SaysoError as error:
            log.warning("%s: %s", session_id, error)


# --- models ------------------------------------------------------------------------------------------------


TURN = "turn"
"""The type of the nodes that are model calls."""


def key_variable(settings: Settings) -> str | None:
    """Return the variable with the key for Claude, or None."""
    return next((name for name in KEY_VARIABLES if settings.env.get(name, "").strip()), None)


def scripted(settings: Settings) -> bool:
    """True if scripts answer instead of Claude."""
    agents = settings.agents
    if agents.scripted == "never":
        return False
    without_key = agents.scripted == "without_key" and key_variable(settings) is None
    return agents.script is not None or without_key


def needs_model(flow: Flow) -> bool:
    """True if a flow has an agent, itself or in a flow that it calls."""
    return any(node.agent is not None for nodes in flow.lists.values() for node in nodes.nodes)


def scripts(settings: Settings) -> Callable[[NodeContext], Provider | None]:
    """Return a function that gives the scripted provider of a model call, or None for Claude."""

    def answers(ctx: NodeContext) -> Provider | None:
        if not scripted(settings):
            return None
        from engine.models.scripted import scripted_provider

        return scripted_provider(ctx, settings.agents.script)

    return answers
