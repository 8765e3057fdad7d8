"""The product as `make up` starts it, and what a storm does to it."""

from __future__ import annotations

import os
import resource
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from config.database.private import open_entries
from tests.journeys.installation import Installation, until

START_SECONDS = 600.0
SLOW_CLIENTS = 500
OURS = "offpeak: "
"""How the words of a process of the tree begin; what it is for follows."""
OWN_SECRETS = ("demo/tokens.json", "secret_key")
"""Files whose purpose is to keep secrets, for who runs the market."""


class Market(Installation):
    """One `manage.py up`: web and loops under the product's own supervisor."""

    def start_up(self) -> None:
        """Start it; wait until it says that it is ready."""
        self.found()
        self.spawn("up", [sys.executable, "manage.py", "up"])
        until(self._says_ready, seconds=START_SECONDS, why="see up.log")

    def _says_ready(self) -> bool:
        running = self._processes["up"]
        assert running.poll() is None, self.log("up")[-3000:]
        return any(line.startswith("ready ") for line in self.log("up").splitlines())

    def children(self) -> dict[str, int]:
        """Return the processes that the supervisor looks after, by what they are for."""
        supervisor = self._processes["up"].pid
        found = {}
        for thread in Path(f"/proc/{supervisor}/task").iterdir():
            children = ""
            with suppress(OSError):  # a thread that ends leaves its children to another
                children = (thread / "children").read_text()
            for child in children.split():
                with suppress(OSError):
                    words = Path(f"/proc/{child}/cmdline").read_text().rstrip("\0")
                    if words.startswith(OURS):
                        found[words.removeprefix(OURS)] = int(child)
        return found

    def is_alive(self) -> bool:
        """Tell if the site says within two seconds that it lives."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 2.0) as asked:
            asked.settimeout(2.0)
            asked.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return asked.recv(100).startswith(b"HTTP/1.1 200")
        return False

    @contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """Let a process of ours stand still, as one that gets no time."""
        process = self._processes[name].pid
        os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(process, signal.SIGCONT)

    def kill_child(self, name: str) -> None:
        """End a process with SIGKILL; wait until the supervisor has started it again."""
        before = until(lambda: self.children().get(name), why=f"no {name}")
        assert before is not None
        os.kill(before, signal.SIGKILL)
        until(lambda: self.children().get(name, before) != before, why=f"{name} stays away")

    @contextmanager
    def slow_clients(self) -> Iterator[None]:
        """Hold many connections that send the beginning of a request and no more."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4 * SLOW_CLIENTS), hard), hard))
        head = (
            f"POST /api/v1/hosts HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            "Content-Type: application/json\r\nContent-Length: 1000\r\n"
        )
        with ExitStack() as held:
            for number in range(SLOW_CLIENTS):
                with suppress(OSError):
                    slow = socket.create_connection(("127.0.0.1", self.port), 2.0)
                    held.enter_context(slow)
                    # Some have sent their head, some part of it.
                    slow.sendall((head if number % 2 else head + "\r\n{").encode())
            yield

    def open_files(self) -> list[Path]:
        """Return what under the data directory others may read."""
        return open_entries(self.home)

    def files_with(self, secrets: list[str]) -> list[str]:
        """Return where under the data directory a secret is, beside where it belongs."""
        found = []
        for file in self.home.rglob("*"):
            own = str(file.relative_to(self.home)) in OWN_SECRETS
            if own:
                assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
            elif file.is_file():
                text = file.read_bytes()
                found += [f"{file} holds {s[:6]}…" for s in secrets if s.encode() in text]
        return found
