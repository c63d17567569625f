"""`sayso gate proxy --url`: the relay to a server that speaks streamable HTTP.

What continues is not the bytes of the client but canonical JSON of what they say: keys sorted, integers exact. The transport is that
of the official client, which keeps the session, follows streams, and does not leave the origin.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp.types import PROTOCOL_VERSION_META_KEY, jsonrpc_message_adapter
from pydantic import ValidationError

from bot.gate.client import Client
from bot.gate.proxy import Proxy, each, read_line, reply, standard_input


class UrlProxy(Proxy):
    """The relay between one client on standard input and output, and one server at a URL."""

    def __init__(self, gate: Client, name: str, wait: float, url: str, token: str) -> None:
        super().__init__(gate, name, wait)
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._version = ""
        """The revision that client and server agreed on by `initialize`."""
        self._write: Any

    async def run(self, command: Sequence[str]) -> int:
        """Relay until the client is gone, or the server cannot be reached."""
        reader = await standard_input()
        async with (
            create_mcp_http_client(headers=self._headers) as http,
            streamable_http_client(self._url, http_client=http) as (read, self._write),
        ):
            asks = asyncio.create_task(each(reader, self._from_client))
            answers = asyncio.create_task(self._answers(read))
            await asyncio.wait([asks, answers], return_when=asyncio.FIRST_COMPLETED)
            for task in (asks, answers, *self._held.values()):
                task.cancel()
        return 0

    async def _answers(self, read: Any) -> None:
        async for told in read:
            if not isinstance(told, Exception):
                said = told.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
                if not self._version and isinstance(said.get("result"), dict):
                    self._version = str(said["result"].get("protocolVersion") or "")
                await self._from_server(json.dumps(said).encode() + b"\n")

    async def _send(self, line: bytes) -> None:
        said = json.loads(json.dumps(read_line(line), sort_keys=True))
        try:
            message = jsonrpc_message_adapter.validate_python(said, by_name=False)
        except ValidationError as error:
            text = f"sayso gate: this is not a message: {error.errors()[0]['msg']}"
            reply(None, error={"code": -32600, "message": text})
            return
        method, params = said.get("method"), said.get("params") or {}
        modern = (params.get("_meta") or {}).get(PROTOCOL_VERSION_META_KEY)
        headers = {MCP_PROTOCOL_VERSION_HEADER: modern or self._version} if modern or self._version else {}
        if modern:
            headers[MCP_METHOD_HEADER] = str(method)
            name = params.get(NAME_BEARING_METHODS.get(str(method), ""))
            if isinstance(name, str):
                headers[MCP_NAME_HEADER] = encode_header_value(name)
        await self._write.send(SessionMessage(message, ClientMessageMetadata(headers=headers)))
