"""The protocol server in a process of its own, as tests use it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from tests.esdb_protocol.faults import ask

ROOT = Path(__file__).resolve().parents[2]


class ServerProcess:
    """A server that can be killed and started again on the same port with the same events."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        self.uri = ""
        self.start()

    @property
    def address(self) -> str:
        """Where it listens, as host:port."""
        return f"127.0.0.1:{self._port}"

    @property
    def running(self) -> bool:
        """Tell if it was started and not ended."""
        return self._process is not None

    def start(self) -> None:
        """Start it, on the port it had before if there was one."""
        assert self._process is None, "already running"
        command = [sys.executable, "-m", "tests.esdb_protocol"]
        options = ["--port", str(self._port), "--journal", str(self._journal)]
        self._process = subprocess.Popen(
            [*command, *options], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        self.uri = _stdout(self._process).readline().strip()
        assert self.uri, "the protocol server did not start"
        port = urlsplit(self.uri).port
        assert port is not None
        self._port = port

    def kill(self) -> None:
        """End it with SIGKILL."""
        assert self._process is not None, "not running"
        self._process.kill()
        self.wait_for_end()

    def hang(self) -> None:
        """Let it take connections and questions and answer nothing."""
        assert self._process is not None, "not running"
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End `hang`."""
        assert self._process is not None, "not running"
        self._process.send_signal(signal.SIGCONT)

    def wait_for_end(self) -> None:
        """Wait until it has ended, however that comes about."""
        assert self._process is not None, "not running"
        self._process.wait(timeout=10)
        _stdout(self._process).close()
        self._process = None

    def faults(self, **faults: int) -> None:
        """Order faults: see `tests.esdb_protocol.faults.Faults`."""
        ask(self.address, "faults", **faults)

    def overwrite(self, stream: str, version: int, text: str) -> None:
        """Change a stored event behind everybody's back; `version` counts from 0."""
        ask(self.address, "overwrite", stream=stream, revision=version, text=text)


def _stdout(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout
