"""`offpeak ssh` and `offpeak port-forward`: into the work of a lease, while it runs."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from .problems import Problem, Unreachable
from .session import Session, session_of
from .spoken import NotUnderstood
from .tunnels import Lease, NotConnected

LOOK_SECONDS = 10.0
PORT_MAX = 65_535
SSH_FAILED = 255
HAND_OVER = (
    "import socket, sys\n"
    "way = socket.socket(socket.AF_UNIX)\n"
    "way.connect(sys.argv[1])\n"
    "socket.send_fds(socket.socket(fileno=1), [b'0'], [way.fileno()])\n"
)
"""What ssh runs to be connected: it hands over a socket that leads to this process."""

Line = Callable[[list[str], str], list[str]]
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Host = Annotated[
    UUID | None, typer.Option("--host", help="which host of a lease on several; else the first")
]


def ssh(
    context: typer.Context,
    lease: UUID,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="after --: one word is a line for the shell, several are run as given"),
    ] = None,
    terminal: Annotated[bool, typer.Option("-t", help="a terminal for the command too")] = False,
    host: Host = None,
) -> None:
    """Open a shell in the running work of a lease, or run a command there and end as it does."""
    session = session_of(context)
    program = shutil.which("ssh")
    if program is None or shutil.which("ssh-keygen") is None:
        raise NotUnderstood(
            "There is no ssh on this machine: install OpenSSH's client (openssh-client)."
        )
    way = Lease(client=session.client, server=session.server, id=lease, host=host)
    words = _words(command or [])

    def line(options: list[str], name: str) -> list[str]:
        return [program, *options, *(["-t"] if terminal else []), name, *words]

    code, _said = by_ssh(session, way, line)
    raise typer.Exit(code)


def _words(command: list[str]) -> list[str]:
    return command if len(command) < 2 else [shlex.join(command)]


def by_ssh(
    session: Session, way: Lease, line: Line, *, hears: bool = False, quiet: bool = False
) -> tuple[int, str]:
    """Run one of OpenSSH's programs, connected to running work; return its exit code.

    line: makes its command line of ssh's options and the name by which the lease is known there.
    hears: return what it says on standard error too, in place of showing it. quiet: show nothing.

    Raises: Problem, Unreachable.
    """
    error = subprocess.PIPE if hears else None
    out = subprocess.DEVNULL if quiet else None
    with tempfile.TemporaryDirectory(prefix="offpeak-ssh-") as folder:
        code, said = asyncio.run(_by_ssh(session, way, Path(folder), line, out, error))
    # As a shell would: of a program that a signal ended, 128 and more.
    return (128 - code if code < 0 else code), said


async def _by_ssh(
    session: Session, way: Lease, folder: Path, line: Line, out: int | None, error: int | None
) -> tuple[int, str]:
    key = folder / "key"
    made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)]
    subprocess.run(made, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    name = f"lease-{str(way.id)[:8]}"
    try:
        async with way.connected(what="shell", key=public) as connection:
            (folder / "known_hosts").write_text(f"{name} {connection.about['host_key']}\n")
            joined: asyncio.Future[Ends] = asyncio.get_running_loop().create_future()

            def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                if not joined.done():
                    joined.set_result((reader, writer))

            server = await asyncio.start_unix_server(join, str(folder / "way"), limit=1 << 20)
            child = await asyncio.create_subprocess_exec(
                *line(_options(folder, name), name), stdout=out, stderr=error
            )
            # What is typed to end a command is for that command; ssh passes it on.
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
            ended = asyncio.create_task(child.communicate())
            either: set[asyncio.Future[Any]] = {ended, joined}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            reason = ""
            if joined.done():
                carrying = asyncio.create_task(connection.carry(*joined.result()))
                await asyncio.wait({ended, carrying}, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait({carrying}, timeout=2)
                reason = carrying.result() if carrying.done() else ""
                carrying.cancel()
                await asyncio.gather(carrying, return_exceptions=True)
            server.close()
            _, said = await ended
    except NotConnected as refused:
        raise _refused(refused) from None
    code = child.returncode
    assert code is not None
    if code == SSH_FAILED and reason:
        session.printer.tell(f"The connection was closed: {reason}.")
    return code, (said or b"").decode(errors="replace")


def _options(folder: Path, name: str) -> list[str]:
    hand_over = shlex.join([sys.executable, "-I", "-S", "-c", HAND_OVER, str(folder / "way")])
    options = {
        "ProxyCommand": hand_over.replace("%", "%%"),
        "ProxyUseFdpass": "yes",
        "HostKeyAlias": name,
        "UserKnownHostsFile": str(folder / "known_hosts"),
        "GlobalKnownHostsFile": os.devnull,
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "IdentityFile": str(folder / "key"),
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "PreferredAuthentications": "publickey",
        "User": "lease",
        "Ciphers": "^aes128-gcm@openssh.com",
        "ControlPath": "none",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ServerAliveInterval": "0",  # it would keep an idle connection from being one
        "LogLevel": "ERROR",
    }
    return [word for key, value in options.items() for word in ("-o", f"{key}={value}")]


def _refused(refused: NotConnected) -> Problem:
    """Return a host's own refusal as one that the market might have made."""
    return Problem(409, {"code": "not-connected", "detail": f"Not connected: {refused}."})


def port_forward(
    context: typer.Context,
    lease: UUID,
    port: Annotated[str, typer.Argument(help="8888, or 9000:8888 to listen on 9000 here")],
    host: Host = None,
) -> None:
    """Reach a port of a lease's work from this machine alone, until Ctrl-C or the lease's end."""
    session = session_of(context)
    local, there = ports_of(port)
    way = Lease(client=session.client, server=session.server, id=lease, host=host)
    way.ask(what="port", port=there)  # what is refused is refused now, not at the first connection
    asyncio.run(_forward(session, way, local, there))


def ports_of(text: str) -> tuple[int, int]:
    """Return the local port and the lease's.

    Raises: NotUnderstood.
    """
    local, _, there = text.rpartition(":")
    ports = []
    for each in (local or there, there):
        if not each.isascii() or not each.isdigit() or not 1 <= int(each[:6]) <= PORT_MAX:
            raise NotUnderstood(f"{text!r} is no port: write 8888, or 9000:8888")
        ports.append(int(each))
    return ports[0], ports[1]


async def _forward(session: Session, way: Lease, local: int, there: int) -> None:
    open_now = set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            async with way.connected(what="port", port=there) as connection:
                if reason := await connection.carry(reader, writer):
                    session.printer.tell(f"A connection was closed: {reason}.")
        except (Problem, Unreachable, NotConnected) as refused:
            told = refused.sentence if isinstance(refused, Problem) else str(refused)
            session.printer.tell(f"A connection was not made: {told.rstrip('.')}.")
        finally:
            open_now.discard(task)
            writer.close()

    try:
        server = await asyncio.start_server(serve, "127.0.0.1", local, limit=1 << 20)
    except OSError as taken:
        raise NotUnderstood(
            f"Port {local} of this machine cannot be listened on ({taken.strerror}): "
            f"choose another, such as {local + 1}:{there}"
        ) from None
    for each in server.sockets:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    address = f"127.0.0.1:{local}"
    session.printer.facts(
        {"address": address, "lease": str(way.id), "port": there},
        (("address", "listening on"), ("port", "port of the lease"), ("lease", "lease")),
    )
    async with server:
        while await _runs(way):
            await asyncio.sleep(LOOK_SECONDS)
    for task in list(open_now):
        task.cancel()
    await asyncio.gather(*open_now, return_exceptions=True)
    session.printer.tell("The work of this lease has ended, and with it the forwarding.")


async def _runs(way: Lease) -> bool:
    """Tell if there is anything to forward to; a market that is away for a moment is no end."""
    with suppress(Unreachable):
        return await asyncio.to_thread(way.runs)
    return True
