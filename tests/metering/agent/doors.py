"""Work that serves a port, and what reaches it through doors."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import asyncssh

from metering.agent.access.doors import Door, Doors
from metering.agent.runtimes.process import ProcessRuntime

SERVES = """
import http.server, os, socketserver, sys
os.environ["MINE"] = "not there at its start"
open("mine", "w").write("of the lease")
socketserver.TCPServer.allow_reuse_address = True
at = ("127.0.0.1", int(sys.argv[1]))
server = http.server.HTTPServer(at, http.server.SimpleHTTPRequestHandler)
print("ready", flush=True)
server.serve_forever()
"""


class Reached:
    """Work that runs, and doors into it."""

    def __init__(self, runtime: ProcessRuntime, folder: Path, lease_id: UUID) -> None:
        self.runtime = runtime
        self.lease_id = lease_id
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.doors = Doors(runtime.inside, runtime.count_in, secret=folder / "access.key")

    async def door(self, kind: Any = "shell") -> Door:
        return await self.doors.through(self.lease_id, kind)

    async def ssh(self, **options: Any) -> asyncssh.SSHClientConnection:
        door = await self.door()
        public = self.key.export_public_key().decode().strip()
        sock = await door.connect("shell", 0, public)
        known = asyncssh.import_known_hosts(f"lease {door.host_key}\n")
        return await asyncssh.connect(
            "lease",
            **{
                "sock": sock, "known_hosts": known, "config": [],
                "client_keys": [self.key], "username": "anybody", "agent_path": None, **options,
            }
        )  # fmt: skip
