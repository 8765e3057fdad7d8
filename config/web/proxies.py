"""Whose request it is, where proxies stand in front: by the hop that a trusted one has added.

Before everything else, so that limits, logs and pages all see the same client, whichever server
runs the application.
"""

from __future__ import annotations

import ipaddress
from collections.abc import MutableMapping
from typing import Any

from config.web.application import App, Receive, Send
from ledger.domain.addresses import Network, client_behind, read_address


def read_networks(text: str) -> tuple[Network, ...]:
    """Return the networks of a list such as `10.0.0.0/8, 127.0.0.1`.

    Raises: ValueError, with the part that is none.
    """
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        try:
            found.append(ipaddress.ip_network(part))
        except ValueError:
            raise ValueError(part) from None
    return tuple(found)


class Proxies:
    """An ASGI application before another one: puts the client's address into the scope.

    A connection without an address is a local socket, which only a proxy of this machine opens.
    """

    def __init__(self, ordinary: App, trusted: tuple[Network, ...]) -> None:
        self._ordinary = ordinary
        self._trusted = trusted

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Look who it is, then pass the request on."""
        if scope["type"] in ("http", "websocket"):
            host, port = scope.get("client") or ("127.0.0.1", 0)
            headers = dict[bytes, list[str]]()
            for name, value in scope["headers"]:
                headers.setdefault(name, []).append(value.decode("latin-1"))
            if read_address(host) is None:
                host = "127.0.0.1"
            if self._trusts(host):
                told = ",".join(headers.get(b"x-forwarded-for", ()))
                client = client_behind(host, told, self._trusted)
                scope["client"] = (client, port if client == host else 0)
                self._set_scheme(scope, headers.get(b"x-forwarded-proto", [""])[-1])
        await self._ordinary(scope, receive, send)

    def _trusts(self, host: str) -> bool:
        found = read_address(host)
        return found is not None and any(found in network for network in self._trusted)

    def _set_scheme(self, scope: MutableMapping[str, Any], told: str) -> None:
        scheme = told.rpartition(",")[2].strip().lower()
        if scheme in ("http", "https", "ws", "wss"):
            secure = scheme in ("https", "wss")
            names = {"http": ("http", "https"), "websocket": ("ws", "wss")}[scope["type"]]
            scope["scheme"] = names[secure]
