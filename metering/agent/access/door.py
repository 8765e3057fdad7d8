"""The door into the work of one lease: a process that lives where the work does.

The agent starts it as root and tells it what to enter. It imports all that it will need and uses
it once, since nothing can be found later; joins the work's control groups; enters its namespaces,
its user namespace last; gives up every right but those of the work's account; in a container takes
the filter of its system calls; and then serves: a
connection to a port of the work, or a shell by ssh, each handed to the agent as an open socket.
So neither sshd nor Python nor an account is needed in there, and a lease without any network can
be reached: what connects stands inside.

Run as a script, isolated (`python -I door.py FD`), in an interpreter of its own: nothing of the
agent's memory, such as its token, comes along. FD is a socket of whole messages in JSON. What goes
through a shell, this process sees; nobody else on the way does.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from . import filtering
else:
    sys.path.insert(0, str(Path(__file__).parent))
    import filtering  # beside this script

if TYPE_CHECKING:
    from asyncssh import SSHKey

MESSAGE_BYTES_MAX = 1 << 20
CONNECT_SECONDS_MAX = 10.0
STREAMS_MAX = 64
NAMESPACES = ("cgroup", "ipc", "uts", "net", "pid", "mnt", "user")
"""In the order in which they are entered: the user namespace takes the right to enter others."""
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPABILITIES_MAX = 64
CAPABILITY_VERSION_3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


class NotOpened(Exception):
    """It cannot be connected to; the text says why."""


def main() -> None:
    """Arguments: the descriptor of the socket by which the agent asks."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    os.umask(0o077)
    order = json.loads(control.recv(MESSAGE_BYTES_MAX))
    try:
        host_key = None
        if order["shell"]:
            door_shell = _shells()
            host_key = door_shell.host_key_of(bytes.fromhex(order["seed"]))
            asyncio.run(door_shell.rehearse(host_key))
        _fork_away()  # alone again: a process with threads may enter no mount namespace
        enter(order)
        _fork_away()  # only a child is in the process namespace
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, ImportError) as error:
        control.send(json.dumps({"failed": str(error)}).encode())
        return
    asyncio.run(serve(control, order, host_key))


def _fork_away() -> None:
    """Go on as a child; the parent stays until that ends, and ends alike."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def enter(order: dict[str, Any]) -> None:
    """Become a process of the work: its groups, namespaces, account and limits.

    Raises: OSError.
    """
    for group in order["groups"]:
        Path(group, "cgroup.procs").write_text("0")
    at = f"/proc/{order['pid']}"
    home, ids = order["home"], order["ids"]
    filters = filtering.filters_of(order["pid"]) if ids else []
    label = filtering.Label(order["pid"])
    if ids and os.readlink(f"{at}/ns/user") == os.readlink("/proc/self/ns/user"):
        raise OSError(0, "its work has no user ids of its own")
    files = [
        os.open(f"{at}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        for name in NAMESPACES
        if os.readlink(f"{at}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}")
    ]
    os.setgroups([])
    for file in files:
        if libc.setns(file, 0):
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}")
        os.close(file)
    for capability in range(CAPABILITIES_MAX):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    uid, gid = order["uid"], order["gid"]
    if ids:
        os.setgroups(order["more_groups"])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _drop_capabilities()
    for name, most in {**order["limits"], "RLIMIT_CORE": 0}.items():
        number = getattr(resource, name)
        _, hard = resource.getrlimit(number)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (value, value))
    taken = os.getresuid() == (uid, uid, uid) and os.getresgid() == (gid, gid, gid)
    if not taken or (uid == 0 and not ids):
        raise OSError(0, "the account could not be taken")
    try:
        os.chdir(home)
    except OSError:
        os.chdir("/")
    label.take()
    filtering.take(filters)


def _drop_capabilities() -> None:
    """Drop them one by one: in a user namespace without a root no change of account does.

    Raises: OSError.
    """
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    head = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    if libc.capset(head, none) or libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"capset: {os.strerror(number)}")


async def serve(control: socket.socket, order: dict[str, Any], host_key: SSHKey | None) -> None:
    """Open what the agent asks for, until it has no more to ask."""
    control.setblocking(False)
    loop = asyncio.get_running_loop()
    public = "" if host_key is None else _public(host_key)
    await loop.sock_sendall(control, json.dumps({"ready": True, "host_key": public}).encode())
    tasks = set[asyncio.Task[None]]()
    while message := await loop.sock_recv(control, MESSAGE_BYTES_MAX):
        asked = json.loads(message)
        task = loop.create_task(_answer(control, asked, order, host_key))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    os._exit(0)  # the agent is gone, or done: shells end with this process, for it leads theirs


async def _answer(
    control: socket.socket, asked: dict[str, Any], order: dict[str, Any], host_key: SSHKey | None
) -> None:
    said: dict[str, Any] = {"id": asked["id"]}
    files: list[int] = []
    opened: socket.socket | None = None
    serving: socket.socket | None = None
    try:
        if asked["what"] == "port":
            opened = await _connect(asked["port"])
        else:
            opened, serving = socket.socketpair()
        files = [opened.fileno()]
    except NotOpened as refused:
        said["failed"] = str(refused)
    await _send(control, json.dumps(said).encode(), files)
    if opened is not None:
        opened.close()
    if serving is not None:
        serving.setblocking(False)
        assert host_key is not None
        await _shells().serve(serving, host_key, asked["key"], order)


async def _connect(port: int) -> socket.socket:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await asyncio.get_running_loop().sock_connect(sock, (host, port))
        except (OSError, TimeoutError):
            sock.close()
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
    raise NotOpened(f"nothing listens on port {port} in the lease")


async def _send(control: socket.socket, message: bytes, files: list[int]) -> None:
    while True:
        try:
            socket.send_fds(control, [message], files)
        except BlockingIOError:
            await asyncio.sleep(0.01)
        else:
            return


def _shells() -> ModuleType:
    """Return the part with asyncssh, which a door for ports does without."""
    if TYPE_CHECKING or __package__:
        from . import door_shell
    else:
        import door_shell  # beside this script
    return door_shell


def _public(key: SSHKey) -> str:
    text: str = key.export_public_key().decode().strip()
    return " ".join(text.split()[:2])


if __name__ == "__main__":
    main()
