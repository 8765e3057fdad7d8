"""Ports for servers of tests, from below those that the system gives to connections.

A port that the system chose, and that was given back, may be a connection's by the time a server
wants it: with several test processes that happens about once in some thousand servers.
"""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

LOWEST = 12_000
OF_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_given: set[int] = set()


def free_port() -> int:
    """Return a port of loopback that nobody listens on, and that no connection will be given.

    No process is given the same one twice.

    Raises:
        RuntimeError: there is none left.
    """
    for port in random.sample(range(LOWEST, _first_of_connections()), k=400):
        if port in _given:
            continue
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            _given.add(port)
            return port
    raise RuntimeError("no port of loopback is free")


def _first_of_connections() -> int:
    with suppress(OSError):
        first = int(OF_CONNECTIONS.read_text().split()[0])
        if first > LOWEST + 1_000:
            return first
    return 32_768
