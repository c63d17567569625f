"""Checks for flows with agents (the key for Claude, what models cost, scripts, MCP servers), and of what is
stored: whether it is as new as what was acknowledged, and, in depth, every session of it.

No server is started, and nothing is asked of the network but what the models take that agents name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from bot.compose.environment import key_variable, needs_model
from bot.compose.projections import differences, heads_of
from bot.compose.suspension import may_repeat
from bot.config.settings import Settings
from bot.doctor.findings import Check
from engine.flow import Flow
from engine.journal.events import decode_event
from engine.journal.fold import derive_state
from engine.language.diagnostics import suggest
from engine.language.errors import Erased, SaysoError
from engine.messages.model_limits import DEFAULT_MODEL
from engine.messages.models import ModelFacts
from engine.messages.prices import UnknownPrice, price_of, prices_from
from engine.models.keys import KEY_VARIABLES
from engine.nodes.runtime.mcp_servers import (
    INSTALL,
    McpUnconfigured,
    is_installed,
    resolved,
    servers,
)
from engine.nodes.runtime.secrets import SecretSource
from engine.storage.store import Store


def check_agents(settings: Settings, flows: Sequence[Flow]) -> Iterator[Check]:
    """Check the needs of agents; nothing if no flow has one."""
    with_agents = sorted(flow.name for flow in flows if needs_model(flow))
    if not with_agents:
        return
    variable, names = key_variable(settings), ", ".join(with_agents)
    if variable is not None:
        yield Check("claude", "ok", f"a key is set ({variable}), for {names}")
    else:
        text = f"no key for Claude is set, and {names} cannot run without one"
        hint = f"Set {' or '.join(reversed(KEY_VARIABLES))} in .env. To try flows without a key: sayso dev"
        yield Check("claude", "fail", text, hint)
    # A model of which nobody knows what it costs is held by no cap.
    prices = prices_from(dict(settings.agents.prices))
    for model in sorted(_models(settings, flows)):
        try:
            price_of(model, prices)
        except UnknownPrice:
            text = f"there is no price for {model}: its costs are not counted, and caps in dollars do not apply to it"
            yield Check(
                "prices", "warn", text, "Set SAYSO_PRICES in .env, or use another model: docs/budgets.md"
            )
    cap = settings.agents.day_cap
    if cap is None:
        text = "there is no daily cap on the cost of agents"
        yield Check("budget", "warn", text, "Set SAYSO_MAX_COST_PER_DAY in .env to dollars.")
    else:
        yield Check("budget", "ok", f"agents may cost ${cap:,.2f} a day (UTC); then people are asked")
    if (file := settings.agents.script) is not None:
        from engine.messages.errors import ScriptError
        from engine.models.scripted import load_script

        try:
            load_script(file)
        except ScriptError as error:
            yield Check("script", "fail", f"SAYSO_SCRIPT: {error}")
        else:
            text = f"SAYSO_SCRIPT is set: {file.name} answers instead of Claude in sayso dev and run"
            hint = "The bot in Slack does not use it. Remove it to use Claude."
            yield Check("script", "warn", text, hint)


async def check_models(settings: Settings, flows: Sequence[Flow]) -> AsyncIterator[Check]:
    """Check the capabilities and retirement dates of the models that agents name."""
    if key_variable(settings) is None or not any(needs_model(flow) for flow in flows):
        return
    from engine.models.claude import ClaudeProvider

    claude = ClaudeProvider(settings.env)
    try:
        for model in sorted(_models(settings, flows)):
            try:
                yield _model(model, await claude.facts(model))
            except SaysoError as error:
                yield Check("model", "warn", f"{model}: {error}")
    finally:
        await claude.close()


def _model(model: str, facts: ModelFacts) -> Check:
    can = [
        "thinks" if "adaptive" in facts.thinking else "",
        f"effort {', '.join(facts.efforts)}" if facts.efforts else "",
        "structured outputs" if facts.structured else "",
        "summaries" if facts.compaction else "",
        "web search" if facts.web_search else "",
        "code execution" if facts.code_execution else "",
    ]
    longest = f", answers up to {facts.max_tokens:,}" if facts.max_tokens else ""
    source = "" if facts.known else " (from the data of this release: the models endpoint did not answer)"
    text = f"{model}: {facts.context:,} tokens{longest}; {'; '.join(filter(None, can))}{source}"
    if facts.lifecycle == "active" and facts.retires_at is None:
        return Check("model", "ok", text)
    when = f" on {facts.retires_at[:10]}" if facts.retires_at else ""
    retires = f"{text}. It is {facts.lifecycle} and retires{when}"
    return Check("model", "fail" if facts.lifecycle == "retired" else "warn", retires, "Use another model.")


def _models(settings: Settings, flows: Sequence[Flow]) -> set[str]:
    """The models that agents name, as far as the files say it, and the one that is set."""
    found = {settings.agents.model or DEFAULT_MODEL}
    for flow in flows:
        for nodes in flow.lists.values():
            named = [node.config.get("model") for node in nodes.nodes if node.agent is not None]
            found |= {model for model in named if isinstance(model, str) and "{{" not in model}
    return found


def check_mcp(settings: Settings, flows: Mapping[str, Flow]) -> Iterator[Check]:
    """Told only where there are servers, or flows that name one."""
    wanted = sorted({(name, flow.name) for flow in flows.values() for name in flow.mcp_servers})
    try:
        known = servers(settings.mcp_file)
    except McpUnconfigured as error:
        yield Check("mcp", "fail", str(error), "docs/agents-tools.md describes the file.")
        return
    if known and not is_installed():
        text = f"{settings.mcp_file} lists MCP servers, but the package for them is not installed"
        yield Check("mcp", "warn", text, INSTALL)
    elif known:
        yield Check("mcp", "ok", f"{len(known)} in {settings.mcp_file}: {', '.join(sorted(known))}")
    for name, flow_name in wanted:
        if name not in known:
            hint = suggest(name, known) or "Add it, or set SAYSO_MCP_CONFIG."
            text = f"flow {flow_name} uses the MCP server {name}, which is not in {settings.mcp_file}"
            yield Check("mcp", "fail", text, hint)
    source = SecretSource(settings.env, settings.secrets_dir, settings.secret_command)
    for server in known.values():
        try:
            resolved({**server.env, **server.headers, **server.oauth}, source.get, {})
        except SaysoError as error:
            yield Check("mcp", "warn", f"MCP server {server.name}: {error}")
        if server.command is not None and shutil.which(server.command, path=os.environ.get("PATH")) is None:
            yield Check("mcp", "warn", f"MCP server {server.name}: there is no program {server.command}")


# --- the store ---------------------------------------------------------------------------------------------


def check_freshness(store: Store) -> Iterator[Check]:
    """Check that the store takes writes and is not suspended, and list work that may be repeated."""
    for trouble in store.troubles():
        hint = "It retries automatically. Is something else writing (a backup, an open `sqlite3` shell)? Is the disk full?"
        yield Check("storage", "fail", trouble, hint)
    reason = store.suspended()
    if reason is None:
        yield Check("freshness", "ok", "the database is as recent as its anchor")
        return
    standing = [f"{head.session_id} ({head.flow_name}): {stands}" for head, stands in may_repeat(store)]
    text = "\n".join([f"suspended, so nothing runs: {reason}", *standing])
    hint = "Work that the sessions above did after that moment may be done a second time. Check it, then: sayso store release"
    yield Check("freshness", "fail", text, hint if standing else "To release it: sayso store release")


def check_deep(store: Store) -> Iterator[Check]:
    """Every journal verified and folded, every row that follows from one compared with it."""
    reason = None if store.suspended() else store.stale()
    if reason is not None:
        yield Check("rows", "fail", reason, "The store is suspended when it is next opened.")
    heads = store.sessions.heads(limit=None)
    bad = [text for head in heads if (text := _broken(store, head.session_id)) is not None]
    if bad:
        hint = "A session that does not verify is put on hold when it next runs."
        yield Check("journals", "fail", "\n".join(bad), hint)
    else:
        yield Check("journals", "ok", f"{len(heads)} verify and fold")
    found = [str(difference) for difference in differences(store, heads_of(store))]
    if found:
        yield Check("derived", "fail", "\n".join(found), "They are rewritten when the bot starts.")
    else:
        yield Check("derived", "ok", "timers, locks, prompts and messages match the journals")


def _broken(store: Store, session_id: str) -> str | None:
    try:
        try:
            derive_state(decode_event(row) for row in store.sessions.journal(session_id))
        except Erased:
            store.sessions.check_chain(session_id)
    except SaysoError as error:
        return f"{session_id}: {error}"
    return None
