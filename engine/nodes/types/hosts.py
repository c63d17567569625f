"""Which hosts a list of hosts means. Pure.

An entry is a host (`grafana.internal`), any host below one (`*.example.com`, which is not `example.com` itself), or
either with a port (`grafana.internal:3000`); without a port it means the usual two, 80 and 443. An address is written
as one: `10.0.0.7`, `[fd00::7]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_USUAL = (80, 443)
_ENTRY = re.compile(
    r"(?P<host>\[[0-9a-f:.]+\]|(?:\*\.)?[^\s:/@*?#\[\]]+)(?::(?P<port>\d{1,5}))?", re.IGNORECASE
)


def is_host(entry: str) -> bool:
    """Whether an entry can mean anything."""
    return _ENTRY.fullmatch(entry) is not None


def host_allowed(host: str, port: int | None, entries: Iterable[str]) -> bool:
    """Whether one of these entries means this host (an IPv6 address without brackets) and port."""
    return any(_means(entry, _plain(host), port) for entry in entries)


def _means(entry: str, host: str, port: int | None) -> bool:
    match = _ENTRY.fullmatch(entry)
    if match is None or not host:
        return False
    if port not in ((int(match["port"]),) if match["port"] else _USUAL):
        return False
    wanted = _plain(match["host"])
    if wanted.startswith("*."):
        return host.endswith(wanted[1:]) and len(host) > len(wanted[1:])
    return host == wanted


def _plain(host: str) -> str:
    """As hosts are compared: small letters, no brackets, no final dot, international names as they are sent."""
    host = host.strip("[]").removesuffix(".").lower()
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return ""
