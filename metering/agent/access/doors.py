"""The doors that an agent keeps: one into each lease that is reached, and what comes through it.

With the standard library alone. A door is a process of its own (door.py), started when it is first
needed, ended a while after its last connection, and dead with the work that it stands in.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from ..runtimes.inside import Inside, NoWayIn

Kind = Literal["shell", "port"]

START_SECONDS_MAX = 30.0
ANSWER_SECONDS_MAX = 15.0
IDLE_SECONDS = 60.0
"""How long a door stays that nobody uses."""
MESSAGE_BYTES_MAX = 1 << 20
SECRET_BYTES = 32
SCRIPT = Path(__file__).with_name("door.py")

Enter = Callable[[UUID], Inside]
CountIn = Callable[[UUID, int], None]


class Door:
    """One door that is open. ended: set when it and the work are gone."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[socket.socket]] = {}
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self.users = 0
        self.host_key = ""

    @classmethod
    async def into(cls, inside: Inside, kind: Kind, seed: bytes) -> Door:
        """Start a door into running work.

        Raises: NoWayIn.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # Its command line, which all users of the host can read, says nothing of the lease.
            process = subprocess.Popen(
                [sys.executable, "-I", str(SCRIPT), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath, "HOME": "/"},  # asyncssh asks for one
                pass_fds=[theirs.fileno()],
                cwd="/",
                start_new_session=True,
            )
        ours.setblocking(False)
        door = cls(process, ours)
        asyncio.get_running_loop().add_reader(ours, door._hear)
        order: dict[str, Any] = {
            "pid": inside.pid,
            "uid": inside.uid,
            "gid": inside.gid,
            "own_network": inside.own_network,
            "home": inside.home,
            "groups": [str(each) for each in inside.groups],
            "environment": dict(inside.environment),
            "limits": dict(inside.limits),
            "ids": inside.ids,
            "more_groups": list(inside.more_groups),
            "shell": kind == "shell",
            "seed": seed.hex(),
        }
        try:
            door._say(order)
            async with asyncio.timeout(START_SECONDS_MAX):
                door.host_key = await door._ready
        except (OSError, TimeoutError) as error:
            door.close()
            raise NoWayIn(f"the host could not open its door: {error}") from error
        except NoWayIn:
            door.close()
            raise
        return door

    @property
    def pid(self) -> int:
        """Return the process of this host below which all that comes through it runs."""
        return self._process.pid

    async def connect(self, kind: Kind, port: int, key: str) -> socket.socket:
        """Return an open socket to a port of the work, or to a shell for the holder of a key.

        Raises: NoWayIn.
        """
        number = next(self._numbers)
        answer: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self._say({"id": number, "what": kind, "port": port, "key": key})
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await answer
        except (OSError, TimeoutError) as error:
            raise NoWayIn("the work did not answer") from error
        finally:
            self._asked.pop(number, None)

    def close(self) -> None:
        """Let go of it: it and all that runs through it ends."""
        if self._control.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self.ended.set()
        everybody: list[asyncio.Future[Any]] = [self._ready, *self._asked.values()]
        for waiting in everybody:
            if not waiting.done():
                waiting.set_exception(NoWayIn("its work has ended"))
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()  # it was told, if anybody waited for it

    def _say(self, said: dict[str, Any]) -> None:
        self._control.send(json.dumps(said).encode())

    def _hear(self) -> None:
        """Take an answer. What a door says is no more trusted than the tenant that it is."""
        files: list[int] = []
        try:
            message, files, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES_MAX, 1)
            if not message:
                self.close()
                return
            self._take(json.loads(message), files)
        except BlockingIOError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self.close()
        finally:
            for file in files:
                with suppress(OSError):
                    os.close(file)

    def _take(self, said: dict[str, Any], files: list[int]) -> None:
        if not self._ready.done():
            if said.get("ready") is True:
                self._ready.set_result(str(said["host_key"])[:500])
            else:
                reason = str(said.get("failed", ""))[:200]
                self._ready.set_exception(NoWayIn(f"the host could not open its door: {reason}"))
            return
        answer = self._asked.get(said["id"])
        if answer is None or answer.done():
            return
        if not files:
            answer.set_exception(NoWayIn(str(said.get("failed", "it did not open"))[:200]))
            return
        sock = socket.socket(fileno=os.dup(files[0]))
        sock.setblocking(False)
        answer.set_result(sock)


class Doors:
    """All doors of a host.

    enter: tells how to get into a lease's work. count_in: takes a process for a lease's own.
    secret: file of which the keys of all leases are made, so that each keeps its own.
    """

    def __init__(self, enter: Enter, count_in: CountIn, *, secret: Path) -> None:
        self._enter = enter
        self._count_in = count_in
        self._secret = secret
        self._open: dict[tuple[UUID, Kind], asyncio.Task[Door]] = {}

    async def through(self, lease_id: UUID, kind: Kind) -> Door:
        """Return the door into a lease, opened if it is not yet; give it back by `leave`.

        Raises: NoWayIn.
        """
        at = (lease_id, kind)
        task = self._open.get(at)
        if task is None or (task.done() and _is_shut(task)):
            task = self._open[at] = asyncio.create_task(self._into(lease_id, kind))
        door = await asyncio.shield(task)
        door.users += 1
        return door

    def leave(self, lease_id: UUID, kind: Kind, door: Door) -> None:
        """Use a door no more; one that nobody uses is closed after a while."""
        door.users -= 1
        if door.users == 0:
            asyncio.get_running_loop().call_later(IDLE_SECONDS, self._tidy, lease_id, kind, door)

    def _tidy(self, lease_id: UUID, kind: Kind, door: Door) -> None:
        if door.users == 0:
            task = self._open.get((lease_id, kind))
            if task is not None and task.done() and not _is_shut(task) and task.result() is door:
                del self._open[lease_id, kind]
            door.close()

    def close(self) -> None:
        """Close all doors: the agent ends."""
        for task in self._open.values():
            if task.done() and not _is_shut(task):
                task.result().close()
            else:
                task.cancel()
        self._open.clear()

    async def _into(self, lease_id: UUID, kind: Kind) -> Door:
        inside = await asyncio.to_thread(self._enter, lease_id)
        if kind == "port" and not inside.own_network:
            raise NoWayIn(
                "work on this host has no network of its own, so a port of it would be one of the "
                "host's"
            )
        seed = hmac.digest(self._key(), f"{lease_id}".encode(), hashlib.sha256)
        door = await Door.into(inside, kind, seed)
        await asyncio.to_thread(self._count_in, lease_id, door.pid)
        return door

    def _key(self) -> bytes:
        try:
            known = self._secret.read_bytes()
        except FileNotFoundError:
            known = b""
        if len(known) != SECRET_BYTES:
            known = os.urandom(SECRET_BYTES)
            new = self._secret.with_name(self._secret.name + ".new")
            with open(new, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(known)
            os.replace(new, self._secret)
        return known


def _is_shut(task: asyncio.Task[Door]) -> bool:
    return task.cancelled() or task.exception() is not None or task.result().ended.is_set()
