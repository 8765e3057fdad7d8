"""Where the tunnel of a host leads, and how its agent proves itself there."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .frames import AGENT_PATH

LOOPBACK = {"127.0.0.1", "::1", "localhost"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Where the market is and how its agent proves itself. ca_file: certificates to trust.

    token: or what tells it as it is now.
    """

    server: str
    token: str | Callable[[], str]
    ca_file: Path | None = None

    @property
    def url(self) -> str:
        """Return the address of the tunnel."""
        return self.server.rstrip("/").replace("http", "ws", 1) + AGENT_PATH

    def headers(self) -> dict[str, str]:
        """Return what proves who this is."""
        token = self.token if isinstance(self.token, str) else self.token()
        return {"Authorization": f"Bearer {token}"}

    def options(self) -> dict[str, Any]:
        """Return what a connection needs beside the address."""
        parts = urlsplit(self.server)
        found: dict[str, Any] = {}
        if parts.scheme == "https":
            file = None if self.ca_file is None else str(self.ca_file)
            found["ssl"] = ssl.create_default_context(cafile=file)
        if parts.hostname in LOOPBACK:
            found["proxy"] = None
        return found
