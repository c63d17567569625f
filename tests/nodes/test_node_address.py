"""Which addresses may be connected to."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.nodes.types.addresses import _is_ipv4, is_disguised, why_refused


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "172.16.0.1",
        "8.8.8.8",
        "0.0.0.0",
        "::1",
        "::",
        "fd12::1",
        "2001:db8::1",
        "::ffff:10.0.0.1",
        "169.253.255.255",
        "169.255.0.1",
        "64:ff9b::a00:1",
    ],
)
def test_private_and_public_addresses_are_allowed(address: str) -> None:
    """Everything but link-local and metadata addresses may be reached."""
    assert why_refused(address, "host.example", ()) is None


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.0.0",
        "169.254.255.255",
        "fe80::1",
        "fe80::1%eth0",
        "febf::1",
        "::ffff:169.254.169.254",
        "::ffff:a9fe:a9fe",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::",
        "::169.254.169.254",
        "::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
    ],
)
def test_link_local_and_metadata_are_refused(address: str) -> None:
    """However it is embedded, such an address is refused and the error says how to allow it."""
    text = why_refused(address, "host.example", ())
    assert text is not None
    assert "allow_hosts" in text
    assert "host.example" in text


@pytest.mark.parametrize("allowed", ["Meta.Example", "meta.example.", "169.254.169.254", "::ffff:a9fe:a9fe"])
def test_a_flow_may_name_what_it_means(allowed: str) -> None:
    """`allow_hosts` takes the host of the URL or the address itself, in any notation."""
    assert why_refused("169.254.169.254", "meta.example", [allowed]) is None
    assert why_refused("::ffff:169.254.169.254", "meta.example", [allowed]) is None


def test_another_name_allows_nothing() -> None:
    """A name in `allow_hosts` counts for that host only, not for its subdomains or other addresses."""
    for allowed in ("example", "a.meta.example", "169.254.169.253", "*", ""):
        assert why_refused("169.254.169.254", "meta.example", [allowed]) is not None


@given(st.from_regex(r"[0-9a-fxX.]{1,14}", fullmatch=True))
def test_what_the_system_reads_as_an_address_is_known(host: str) -> None:
    """The same texts are IPv4 addresses to us as to the C library."""
    try:
        socket.inet_aton(host)
    except OSError:
        read = False
    else:
        read = True
    assert _is_ipv4(host.split(".")) == read


def test_what_is_no_plain_address_is_refused() -> None:
    """Notations that only the system's resolver understands never reach it."""
    assert why_refused("2852039166", "2852039166", ()) is not None
    assert [is_disguised(host) for host in ("2852039166", "0xa9.254.1", "127.1", "010.0.0.1")] == [True] * 4
    assert [is_disguised(host) for host in ("127.0.0.1", "::1", "abc.de", "x", "cafe")] == [False] * 5
