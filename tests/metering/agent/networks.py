"""A host's network of its own with a neighbour in it, so that real sockets meet nobody else's."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

CLONE_NEWNET = 0x4000_0000
HOST, PUBLIC, OTHER = "203.0.113.1", "203.0.113.2", "203.0.113.3"
PRIVATE, METADATA = "10.99.0.2", "169.254.169.254"
PORTS = (8443, 9000)
SERVES = """
import selectors, socket, sys
waiting = selectors.DefaultSelector()
for port in map(int, sys.argv[1:]):
    waiting.register(socket.create_server(("0.0.0.0", port)), selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for key, _ in waiting.select():
        made, _ = key.fileobj.accept()
        made.sendall(b"served")
        made.close()
"""


class Network:
    """A network in which what is done by `within` is done, processes started by it included."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    def within(self, act: Callable[..., T], *arguments: Any) -> T:
        """Do something there, and return what came of it."""
        return self._thread.submit(act, *arguments).result()

    def close(self) -> None:
        """Let go of it."""
        self._thread.shutdown()


@contextmanager
def neighbourhood() -> Iterator[Network]:
    """Give a host's network, in which a neighbour serves at public and private addresses."""
    network = Network()
    if network.within(ctypes.CDLL(None).unshare, CLONE_NEWNET):
        raise OSError("no network can be made")
    serve = [sys.executable, "-c", SERVES, *map(str, PORTS)]
    with subprocess.Popen(["unshare", "-n", *serve], stdout=subprocess.PIPE) as neighbour:
        own = network.within(lambda: subprocess.Popen(serve, stdout=subprocess.PIPE))
        try:
            for each in (neighbour, own):
                assert each.stdout is not None and each.stdout.readline() == b"ready\n"
            _join(network, neighbour.pid)
            yield network
        finally:
            for each in (neighbour, own):
                each.kill()
                each.communicate()
            network.close()


def _join(network: Network, neighbour: int) -> None:
    theirs = ["nsenter", f"--net=/proc/{neighbour}/ns/net"]
    for words in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "link", "add", "here", "type", "veth", "peer", "name", "there"],
        ["ip", "link", "set", "there", "netns", str(neighbour)],
        ["ip", "addr", "add", f"{HOST}/24", "dev", "here"],
        ["ip", "link", "set", "here", "up"],
        *(["ip", "route", "add", f"{each}/32", "dev", "here"] for each in (PRIVATE, METADATA)),
        *(
            [*theirs, "ip", "addr", "add", f"{each}/24", "dev", "there"]
            for each in (PUBLIC, OTHER, PRIVATE, METADATA)
        ),
        [*theirs, "ip", "link", "set", "there", "up"],
    ):
        network.within(lambda words=words: subprocess.run(words, check=True, capture_output=True))
