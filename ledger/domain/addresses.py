"""Addresses of clients and of servers: which are this machine, and who stands behind a proxy."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def is_loopback(host: str) -> bool:
    """Tell if a host, by its name or address, is this machine alone."""
    bare = host.strip("[]").lower().removesuffix(".")
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    found = read_address(bare)
    return found is not None and found.is_loopback


def read_address(text: str) -> Address | None:
    """Return the address of one hop as a proxy writes it, with or without a port; None for others.

    IPv4 written as IPv6 is IPv4: a rule about one must not be gone around by the other.
    """
    bare = text.strip().strip('"')
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def client_behind(peer: str, forwarded: str, trusted: Sequence[Network]) -> str:
    """Return whose request it is: the last hop that no proxy of ours has added.

    peer: who is connected to us. forwarded: X-Forwarded-For, which each proxy adds to at its end.
    What stands before an address that we do not trust is only that one's word; what cannot be
    read is nobody's.
    """
    client = read_address(peer)
    if client is None:
        return peer
    for hop in reversed(forwarded.split(",") if forwarded else ()):
        if not any(client in network for network in trusted):
            break
        before = read_address(hop)
        if before is None:
            break
        client = before
    return str(client)
