"""A market that answers what it is told to, and `offpeak` run against it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typer.testing import CliRunner

from marketplace.sdk import __main__ as line
from marketplace.sdk.client import Client

ROOT = Path(__file__).parents[3]
PATIENCE_SECONDS = 120.0
"""A command is read and started anew, on a machine that has other things to do."""
Answer = tuple[int, Any]
BID = "0ff9ea40-0000-4000-8000-000000000009"


class Sent(bytes):
    """Server-sent events, in place of JSON."""


@dataclass
class Market:
    """answers: by method and path below /api/v1/, or a function of them. heard: in order."""

    url: str
    answers: dict[str, Answer] = field(default_factory=dict)
    heard: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    answer: Callable[[str], Answer] | None = None


@contextmanager
def pretending() -> Iterator[Market]:
    """Serve a market on loopback that answers what `answers` holds."""

    class Handler(BaseHTTPRequestHandler):
        def do_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            asked = f"{self.command} {self.path.removeprefix('/api/v1/').partition('?')[0]}"
            market.heard.append((asked, dict(self.headers), body))
            status, answer = (
                market.answer(asked) if market.answer else market.answers.get(asked, (404, {}))
            )
            text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            kind = "text/event-stream" if isinstance(answer, Sent) else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_any  # noqa: N815  # the base class calls them

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    market = Market(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield market
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "marketplace.sdk", *words]


def surroundings(market: Market, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    known = {"OFFPEAK_SERVER": market.url, "OFFPEAK_TOKEN": "offp_user_x", "TZ": "UTC"}
    return {**kept, "PYTHONPATH": str(ROOT), **known, **more}


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def offpeak(
    market: Market, *words: str, charset: str = "utf-8", typed: str = "", **environment: str
) -> Ended:
    """Run a command to its end in this process, its output in pipes; pauses are short.

    typed: what it reads from standard input.
    """

    def hurried(server: str, token: str) -> Client:
        return Client(server, token, sleep=lambda seconds: time.sleep(min(seconds, 0.01)))

    env: Mapping[str, str] = surroundings(market, **environment)
    with patch.object(line, "Client", hurried):
        done = CliRunner(charset).invoke(
            line.app, list(words), input=typed, env=env, prog_name="offpeak"
        )
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return Ended(done.exit_code, done.stdout, done.stderr)


def at_a_terminal(
    market: Market, words: Sequence[str], *, columns: int, typed: str = "", **environment: str
) -> tuple[int, str]:
    """Run a command at a terminal so wide; return its exit code and all that was shown."""
    ours, theirs = pty.openpty()
    known: Mapping[str, str] = {"COLUMNS": str(columns), "LINES": "50", "TERM": "xterm"}
    process = subprocess.Popen(
        command(*words),
        env=surroundings(market, PYTHONIOENCODING="utf-8", **known, **environment),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        close_fds=True,
    )
    os.close(theirs)
    if typed:
        os.write(ours, typed.encode())
    shown = b""
    ends = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < ends:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    code = process.wait(timeout=PATIENCE_SECONDS)
    return code, shown.decode().replace("\r\n", "\n")
