"""The socket by which the owner speaks to the agent that runs: one line of JSON each way.

It lies in the state directory, mode 0600, and answers root and the agent's own user alone: the
kernel says who asks, whatever the mode became. Its path may be longer than a socket's may be, so
both sides name it through the opened folder.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from ..wire import Taking
from .taking import STRICTNESS

log = logging.getLogger(__name__)

NAME = "hand.sock"
REQUEST_BYTES_MAX = 4_096
ANSWER_BYTES_MAX = 4 * 1024 * 1024
ASKED_SECONDS_MAX = 5.0
"""An agent that does not answer in so long hangs: it is told by the file, and passed by."""
WAITING_MAX = 8


class Ruled(Protocol):
    """An agent, as its owner commands it."""

    def heed(self, taking: Taking, *, stated_grace: bool = False) -> None:
        """Take the owner's word and act on it before returning. Raises: OSError."""
        ...

    def status(self) -> dict[str, Any]:
        """Return how the host stands, as `hand.shown` tells it."""
        ...


class NoAnswer(Exception):
    """No agent answers at this state directory; the text says why."""


class NotHeeded(Exception):
    """The agent answered that it cannot; the text says why."""


@contextmanager
def _address(state_dir: Path) -> Iterator[str]:
    """Give the socket's address, short enough however long the path is."""
    folder = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{NAME}"
    finally:
        os.close(folder)


@contextmanager
def listening(state_dir: Path, agent: Ruled) -> Iterator[None]:
    """Answer the owner for as long as this lasts. The caller holds the state directory's lock."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    new = state_dir / f"{NAME}.new"
    new.unlink(missing_ok=True)
    with _address(state_dir) as address:
        before = os.umask(0o177)
        try:
            door.bind(f"{address}.new")
        finally:
            os.umask(before)
    door.listen(WAITING_MAX)
    os.replace(new, state_dir / NAME)  # who finds it is answered
    thread = threading.Thread(target=_serve, args=[door, agent], name="hand", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):
            door.shutdown(socket.SHUT_RDWR)
        door.close()
        thread.join(ASKED_SECONDS_MAX)
        (state_dir / NAME).unlink(missing_ok=True)


def ask(state_dir: Path, do: str, *, stated_grace: bool = False) -> dict[str, Any]:
    """Ask the running agent; do: `status`, or what it may take from now on.

    Raises: NoAnswer, NotHeeded.
    """
    try:
        with _address(state_dir) as address, socket.socket(socket.AF_UNIX) as line:
            line.settimeout(ASKED_SECONDS_MAX)
            line.connect(address)
            line.sendall(json.dumps({"do": do, "stated_grace": stated_grace}).encode() + b"\n")
            answer: dict[str, Any] = json.loads(_line(line, ANSWER_BYTES_MAX))
    except TimeoutError:
        raise NoAnswer(f"the agent does not answer within {ASKED_SECONDS_MAX:.0f} s") from None
    except (FileNotFoundError, ConnectionRefusedError):
        raise NoAnswer("no agent runs here") from None
    except (OSError, ValueError) as error:
        raise NoAnswer(f"the agent cannot be asked: {error}") from None
    if "error" in answer:
        raise NotHeeded(str(answer["error"]))
    return answer


def _serve(door: socket.socket, agent: Ruled) -> None:
    while True:
        try:
            line, _ = door.accept()
        except OSError:
            return  # closed
        with line, suppress(OSError):
            line.settimeout(ASKED_SECONDS_MAX)
            answer = _answer(line, agent)
            line.sendall(json.dumps(answer).encode() + b"\n")


def _answer(line: socket.socket, agent: Ruled) -> dict[str, Any]:
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    try:
        text = _line(line, REQUEST_BYTES_MAX)  # read also of who may not: else no answer arrives
        if uid not in (0, os.geteuid()):
            log.warning("the owner's hand: user %d asked, who may not", uid)
            return {"error": "only root and the agent's own user may ask"}
        asked = json.loads(text)
        do, stated_grace = asked["do"], bool(asked.get("stated_grace", False))
    except (ValueError, KeyError, TypeError):
        return {"error": "that is no request"}
    if do == "status":
        return agent.status()
    if do not in STRICTNESS:
        return {"error": "that is nothing the agent can do"}
    try:
        agent.heed(do, stated_grace=stated_grace)
    except OSError as error:
        return {"error": f"it holds only until the agent is started anew: {error}"}
    return agent.status()


def _line(line: socket.socket, most: int) -> bytes:
    read: Callable[[int], bytes] = line.recv
    found = bytearray()
    while not found.endswith(b"\n"):
        part = read(65_536)
        if not part or len(found) > most:
            raise ValueError("it ends in the middle")
        found += part
    return bytes(found)
