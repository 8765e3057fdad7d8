"""The protocol server in a process of its own, as tests use it."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tests.esdb_protocol.faults import ask
from tests.forking import prepared

START_SECONDS = 120.0


class ServerProcess:
    """A server that can be killed and started again on the same port with the same events."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._process: ForkServerProcess | None = None
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
        ours, its = prepared().Pipe(duplex=False)
        with ours, its:
            words = (self._port, self._journal, its)
            self._process = prepared().Process(target=_serve, args=words, daemon=True)
            self._process.start()
            assert ours.poll(START_SECONDS), "the protocol server did not start"
            self._port = ours.recv()
        self.uri = f"esdb://{self.address}?Tls=false"

    def kill(self) -> None:
        """End it with SIGKILL."""
        assert self._process is not None, "not running"
        self._process.kill()
        self.wait_for_end()

    def hang(self) -> None:
        """Let it take connections and questions and answer nothing."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        """End `hang`."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None, "not running"
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def wait_for_end(self) -> None:
        """Wait until it has ended, however that comes about."""
        assert self._process is not None, "not running"
        self._process.join(10)
        assert self._process.exitcode is not None, "the protocol server does not end"
        self._process.close()
        self._process = None

    def faults(self, **faults: int) -> None:
        """Order faults: see `tests.esdb_protocol.faults.Faults`."""
        ask(self.address, "faults", **faults)

    def overwrite(self, stream: str, version: int, text: str) -> None:
        """Change a stored event behind everybody's back; `version` counts from 0."""
        ask(self.address, "overwrite", stream=stream, revision=version, text=text)


def _serve(port: int, journal: Path, told: Connection) -> None:
    """Serve until the process is ended; tell on which port."""
    from tests.esdb_protocol.server import serve

    serving = serve(port, journal)
    told.send(serving.port)
    told.close()
    serving.server.wait_for_termination()
