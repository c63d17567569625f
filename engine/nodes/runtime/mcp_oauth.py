"""OAuth for MCP servers over HTTP: an access token by client credentials, fetched on demand and again when it expires.

The credentials go only to the issuer that the file names, wherever the server leads. Tokens are in memory only, and are
redacted from the server's output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from engine.nodes.runtime.mcp_servers import Server, resolved

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthToken


class _Tokens:
    """Storage of the library for one connection."""

    def __init__(self, used: dict[str, str]) -> None:
        self._used = used
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens
        for name in ("access_token", "refresh_token"):
            if (value := getattr(tokens, name)) is not None:
                self._used[f"OAUTH_{name.upper()}"] = value

    async def get_client_info(self) -> Any:
        return None

    async def set_client_info(self, client_info: Any) -> None:
        """The credentials are those of the file."""


def authorization(server: Server, secret: Callable[[str], str], used: dict[str, str]) -> Any:
    """Return the OAuth provider for a server, or None if its file has no `oauth`. Raises `SaysoError`."""
    if not server.oauth:
        return None
    from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

    told: Mapping[str, str] = resolved(server.oauth, secret, used)
    return ClientCredentialsOAuthProvider(
        server_url=server.url or "",
        storage=_Tokens(used),
        client_id=told["clientId"],
        client_secret=told["clientSecret"],
        issuer=told["issuer"],
    )


def is_refused(error: BaseException | None) -> bool:
    """True if no token could be obtained."""
    from mcp.client.auth import OAuthFlowError

    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return isinstance(error, OAuthFlowError)
