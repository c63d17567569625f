"""Pages in a browser: files with a strict policy, and the check of where a request comes from.

The local workspace and the control room have these in common, and know nothing of each other. Requests must name a host of
ours (DNS rebinding), and come from no other origin (any page of the web that a person visits).
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from aiohttp import web

SHARED = Path(__file__).parent / "shared"
"""The folder of what several pages have."""
LOOPBACK = frozenset({"127.0.0.1", "localhost"})
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def page_file(name: str, folder: Path) -> web.Response | None:
    """A file of a page, from its folder or the shared one; None where neither has it. Nothing outside is given."""
    for place in (folder, SHARED):
        path = (place / name).resolve()
        kind = _TYPES.get(path.suffix)
        if kind is not None and path.is_relative_to(place.resolve()) and path.is_file():
            headers = {**HEADERS, "Cache-Control": "no-cache"}
            return web.Response(body=path.read_bytes(), content_type=kind, charset="utf-8", headers=headers)
    return None


def is_foreign(request: web.Request, hosts: Collection[str], scheme: str = "http") -> bool:
    """True if a request names none of these hosts, or comes from another origin than the one that it names."""
    host = request.headers.get("Host", "")
    origin = request.headers.get("Origin")
    return host.rsplit(":", 1)[0] not in hosts or (origin is not None and origin != f"{scheme}://{host}")
