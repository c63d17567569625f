"""Checks of the MCP servers that agents use: their file, that flows name servers that are there, secrets, programs.

No server is started or asked.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping

from bot.config.settings import Settings
from bot.doctor.findings import Check
from engine.flow import Flow
from engine.language.diagnostics import suggest
from engine.language.errors import SaysoError
from engine.nodes.runtime.mcp_servers import McpUnconfigured, Server, resolved, servers
from engine.nodes.runtime.secrets import SecretSource


def check_mcp(settings: Settings, flows: Mapping[str, Flow]) -> Iterator[Check]:
    """Told only where there are servers, or flows that name one."""
    wanted = sorted({(name, flow.name) for flow in flows.values() for name in _named(flow)})
    try:
        known = servers(settings.mcp_file)
    except McpUnconfigured as error:
        yield Check("mcp", "fail", str(error), "docs/agents-tools.md shows what stands in the file.")
        return
    if known:
        yield Check("mcp", "ok", f"{len(known)} in {settings.mcp_file}: {', '.join(sorted(known))}")
    for name, flow_name in wanted:
        if name not in known:
            hint = suggest(name, known) or "Add it, or set SAYSO_MCP_CONFIG."
            text = f"flow {flow_name} uses the MCP server {name}, which {settings.mcp_file} does not have"
            yield Check("mcp", "fail", text, hint)
    source = SecretSource(settings.env, settings.secrets_dir)
    for server in known.values():
        yield from _check_server(server, source)


def _named(flow: Flow) -> Iterator[str]:
    """The servers whose tools agents of a flow use."""
    for nodes in flow.lists.values():
        for node in nodes.nodes:
            for tool in node.agent.tools if node.agent is not None else ():
                if tool.kind == "mcp":
                    yield str(tool.node.config["server"])


def _check_server(server: Server, source: SecretSource) -> Iterator[Check]:
    try:
        resolved({**server.env, **server.headers}, source.get, {})
    except SaysoError as error:
        yield Check("mcp", "warn", f"MCP server {server.name}: {error}")
    if server.command is not None and shutil.which(server.command, path=os.environ.get("PATH")) is None:
        yield Check("mcp", "warn", f"MCP server {server.name}: there is no program {server.command}")
