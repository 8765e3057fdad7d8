"""`/metrics` of an agent, in Prometheus' text format, for the owner's own monitoring.

On loopback only: it says what runs on a host, and asks nobody who they are.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .hand.taking import STRICTNESS

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ASKED_SECONDS_MAX = 10

Status = Callable[[], Mapping[str, Any]]

HELP = {
    "offpeak_agent_info": "The agent's version and level of isolation; always 1.",
    "offpeak_agent_leases": "Leases whose work runs.",
    "offpeak_agent_gpus": "GPUs of the host, by what they are used for.",
    "offpeak_agent_gpu_busy_seconds_total": "Busy GPU-time of leases that was kept, since start.",
    "offpeak_agent_gpu_granted_seconds_total": "GPU-time of leases that was kept, since start.",
    "offpeak_agent_spool_bytes": "Size of the spool.",
    "offpeak_agent_spool_waiting": "Messages that the server has not taken yet.",
    "offpeak_agent_server_contact_age_seconds": "Time since the server last answered; -1: never.",
    "offpeak_agent_taking": "1 at what the owner's hand lets be done.",
    "offpeak_agent_filler_gpus": "GPUs on which the owner's filler runs.",
    "offpeak_agent_filler_starts_total": "Starts of the filler, since start of the agent.",
}
COUNTERS = frozenset(name for name in HELP if name.endswith("_total"))


def read_address(text: str) -> tuple[str, int]:
    """Return the address and port that metrics are served at.

    Raises: ValueError, where it is not of loopback, or nothing of the kind.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    fits = port.isascii() and port.isdigit() and 0 < int(port) < 65_536
    try:
        loopback = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host).is_loopback
    except ValueError:
        loopback, fits = True, False
    if not fits:
        raise ValueError(f"an address and a port, such as 127.0.0.1:9400, not {text!r}")
    if not loopback:
        raise ValueError(f"an address of this machine alone, such as 127.0.0.1, not {host!r}")
    return ("127.0.0.1" if host == "localhost" else host), int(port)


def text_of(status: Mapping[str, Any]) -> str:
    """Return an account of the agent as Prometheus reads it."""
    gpus = [gpu["use"].partition(" ")[0] for gpu in status["gpus"]]
    uses = {use: gpus.count(use) for use in ("idle", "leased", "filler", "faulty")}
    reached = status["server"]["reached_ms"]
    age = -1.0 if reached is None else max(0, status["at_ms"] - reached) / 1000
    running = [lease for lease in status["leases"] if lease["state"] == "running"]
    info = {"version": status["agent"]["version"], "level": status["level"]}
    taking = status["hand"]["taking"]
    found: dict[str, list[tuple[dict[str, str], float]]] = {
        "offpeak_agent_info": [(info, 1)],
        "offpeak_agent_leases": [({}, len(running))],
        "offpeak_agent_gpus": [({"use": use}, count) for use, count in uses.items()],
        "offpeak_agent_gpu_busy_seconds_total": [({}, status["kept"]["busy_ms"] / 1000)],
        "offpeak_agent_gpu_granted_seconds_total": [({}, status["kept"]["granted_ms"] / 1000)],
        "offpeak_agent_spool_bytes": [({}, status["spool"]["bytes"])],
        "offpeak_agent_spool_waiting": [({}, status["spool"]["waiting"])],
        "offpeak_agent_server_contact_age_seconds": [({}, age)],
        "offpeak_agent_taking": [({"taking": each}, each == taking) for each in STRICTNESS],
        "offpeak_agent_filler_gpus": [({}, len(status["filler"]["cards"]))],
        "offpeak_agent_filler_starts_total": [({}, status["filler"]["starts"])],
    }
    return "".join(_family(name, found[name]) for name in HELP)


def _family(name: str, rows: list[tuple[dict[str, str], float]]) -> str:
    kind = "counter" if name in COUNTERS else "gauge"
    head = f"# HELP {name} {HELP[name]}\n# TYPE {name} {kind}\n"
    return head + "".join(f"{name}{_labels(labels)} {float(value):g}\n" for labels, value in rows)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@contextmanager
def exported(address: tuple[str, int] | None, status: Status) -> Iterator[None]:
    """Serve metrics for as long as this lasts; None: not at all. Raises: OSError."""
    if address is None:
        yield
        return

    class Metrics(BaseHTTPRequestHandler):
        timeout = ASKED_SECONDS_MAX

        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            body = text_of(status()).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            log.debug(format, *args)

    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET

    class Server(ThreadingHTTPServer):
        address_family = family
        daemon_threads = True

    server = Server(address, Metrics)
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
