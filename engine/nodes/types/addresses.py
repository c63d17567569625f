"""Addresses that a flow may reach over HTTP, and matching of host lists. Pure.

Private hosts are the normal targets of operations, so they are allowed. Link-local and cloud metadata addresses give
the machine's credentials to anyone who can choose a URL, so a flow has to name them. The rule checks the address that
is about to be connected to, never the name, which resolves to whatever its owner likes.

An entry is a host (`grafana.internal`), any host below one (`*.example.com`, which is not `example.com` itself), or
either with a port (`grafana.internal:3000`); without a port it means the usual two, 80 and 443. An address is written
as one: `10.0.0.7`, `[fd00::7]`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yarl import URL

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = {
    ipaddress.ip_address(text): owner
    for text, owner in {
        "100.100.100.200": "Alibaba Cloud",
        "168.63.129.16": "Azure",
        "192.0.0.192": "Oracle Cloud",
        "fd00:ec2::254": "AWS",
        "fd00:ec2::23": "AWS",
        "fd20:ce::254": "Google Cloud",
        "fd00:42::42": "Scaleway",
    }.items()
}
_LINK_LOCAL = (ipaddress.ip_network("169.254.0.0/16"), ipaddress.ip_network("fe80::/10"))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
_NUMERIC = re.compile(r"[0-9a-fx.]+", re.IGNORECASE)


def parsed(text: str) -> URL:
    """An address as the sender of requests reads it. Raises `ValueError`."""
    from yarl import URL  # not for flows that reach nothing

    try:
        return URL(text)
    except IndexError:  # what it raises for `//[::1]@`
        raise ValueError("there is no host after the @") from None


def why_refused(address: str, host: str, allowed: Iterable[str]) -> str | None:
    """Why a request for `host` may not connect to `address`, or None when it may.

    `allowed` names hosts or addresses that are reached in spite of the rule.
    """
    try:
        target = _real(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return f"{address} is not a valid address"
    owner = _METADATA.get(target)
    kind = f"the metadata address of {owner}" if owner else None
    if any(target in network for network in _LINK_LOCAL):
        kind = "a link-local address"
    if kind is None or {_comparable(host), str(target)} & {_comparable(name) for name in allowed}:
        return None
    return f"{target} is {kind}, which a flow can reach only if its `allow_hosts` lists {_comparable(host)}"


def is_disguised(host: str) -> bool:
    """True if this host is an IPv4 address in another notation (`2852039166`, `0xa9.254.1`)."""
    if not _NUMERIC.fullmatch(host):
        return False
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return False
    return _is_ipv4(host.split("."))


def _is_ipv4(parts: list[str]) -> bool:
    """True if `inet_aton` reads these parts: the last one covers all remaining bytes."""
    try:
        *first, last = map(_number, parts)
    except ValueError:
        return False
    return len(parts) <= 4 and all(byte <= 255 for byte in first) and last < 256 ** (5 - len(parts))


def _number(part: str) -> int:
    if part[:2].lower() == "0x":
        return int(part, 16)
    return int(part, 8 if part.startswith("0") else 10)


def _real(address: Address) -> Address:
    """Return the IPv4 address embedded in an IPv6 one; any other address unchanged."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if inner is not None:
        return inner
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 0xFFFF):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _comparable(host: str) -> str:
    """Normalize a host for comparison: no case, brackets, zone or final dot; addresses in one notation."""
    text = host.strip().strip("[]").rstrip(".").lower()
    try:
        return str(_real(ipaddress.ip_address(text.partition("%")[0])))
    except ValueError:
        return text


# --- hosts -------------------------------------------------------------------------------------------------


_USUAL = (80, 443)
_ENTRY = re.compile(
    r"(?P<host>\[[0-9a-f:.]+\]|(?:\*\.)?[^\s:/@*?#\[\]]+)(?::(?P<port>\d{1,5}))?", re.IGNORECASE
)


def is_host(entry: str) -> bool:
    """True if an entry can mean anything."""
    return _ENTRY.fullmatch(entry) is not None


def host_allowed(host: str, port: int | None, entries: Iterable[str]) -> bool:
    """True if one of these entries means this host (an IPv6 address without brackets) and port."""
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
    """Normalize a host name: small letters, no brackets, no final dot, international names in their encoded form."""
    host = host.strip("[]").removesuffix(".").lower()
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return ""
