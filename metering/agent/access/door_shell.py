"""Shells by ssh inside the work of a lease, by asyncssh; with sftp, scp and forwarded ports.

Part of the door (see door.py), and like it run as a script's module: with nothing but asyncssh and
the standard library.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import socket
import struct
import tempfile
import termios
from contextlib import suppress
from typing import Any

import asyncssh
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
)
LOGIN_SECONDS = 20
CHUNK = 1 << 16
LINGER_SECONDS = 1.0
"""How long output is waited for that a shell's children still hold open after its end."""
HANGUP_SECONDS = 5.0
SHELLS = ("/bin/bash", "/bin/sh")
SIGNALLED = 128


def host_key_of(seed: bytes) -> asyncssh.SSHKey:
    """Return the key by which this lease's work proves itself."""
    pem = Ed25519PrivateKey.from_private_bytes(seed).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    return asyncssh.import_private_key(pem)


class Server(asyncssh.SSHServer):
    """Lets in who holds one key, whatever name they give."""

    def __init__(self, key: asyncssh.SSHKey, *, own_network: bool) -> None:
        self._key = key
        self._own_network = own_network

    def begin_auth(self, username: str) -> bool:
        """Ask everybody for a proof."""
        return True

    def public_key_auth_supported(self) -> bool:
        """Take keys, and nothing else."""
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Take the key that the permit names."""
        return bool(key == self._key)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> bool:
        """Forward to the lease's own loopback, where that is the lease's own."""
        return self._own_network and dest_host in ("localhost", "127.0.0.1", "::1")


async def serve(
    sock: socket.socket, host_key: asyncssh.SSHKey, key: str, order: dict[str, Any]
) -> None:
    """Serve one client."""
    with sock, suppress(OSError, asyncssh.Error, asyncssh.KeyImportError):
        known = asyncssh.import_public_key(key)
        connection = await asyncssh.run_server(
            sock,
            server_factory=lambda: Server(known, own_network=order["own_network"]),
            process_factory=lambda process: _run(process, order["environment"]),
            server_host_keys=[host_key],
            **_options(),
        )
        await connection.wait_closed()


class _Files(asyncssh.SFTPServer):
    """Files by sftp, which ends with an exit code: scp takes an end without one for a failure."""

    def exit(self) -> None:
        with suppress(OSError):
            self.channel.exit(0)


def _options() -> dict[str, Any]:
    return {
        "encryption_algs": CIPHERS,
        "compression_algs": ["none"],
        "encoding": None,
        "sftp_factory": _Files,
        "allow_scp": True,
        "agent_forwarding": False,
        "x11_forwarding": False,
        "login_timeout": LOGIN_SECONDS,
        "keepalive_interval": 0,
        "gss_host": None,
        "config": [],
    }


async def rehearse(host_key: asyncssh.SSHKey) -> None:
    """Use all of it once, while what is imported late can still be found."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    ours, theirs = socket.socketpair()
    for each in (ours, theirs):
        each.setblocking(False)
    order = {"own_network": False, "environment": {"PATH": os.defpath}}
    public = key.export_public_key().decode()
    with tempfile.TemporaryDirectory() as folder:
        serving = asyncio.create_task(serve(theirs, host_key, public, order))
        async with asyncssh.connect(
            "rehearsal",
            sock=ours,
            known_hosts=None,
            client_keys=[key],
            username="x",
            config=[],
            agent_path=None,
        ) as client:
            await client.run("true", input=b"x", encoding=None)
            await client.run("true", term_type="xterm", encoding=None)
            async with client.start_sftp_client() as files:
                await files.listdir(folder)
        await serving


async def _run(process: asyncssh.SSHServerProcess[bytes], environment: dict[str, str]) -> None:
    """Run one command, or a shell, to its end or until its client has gone."""
    shell = next((each for each in SHELLS if os.path.exists(each)), "/bin/sh")
    command = process.command
    words = [shell] if command is None else [shell, "-c", command]
    try:
        running: _Session = _Terminal(process) if process.term_type else _Pipes(process)
        code = await running.run(words, environment)
    except OSError as error:
        process.stderr.write(f"{words[0]}: {error.strerror}\n".encode())
        code = 127
    process.exit(code if code >= 0 else SIGNALLED - code)


class _Session:
    """A command and what passes between it and its client."""

    def __init__(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        self._process = process
        self._reading = 0

    async def run(self, words: list[str], environment: dict[str, str]) -> int:
        """Run it to its end; return its exit code. Raises: OSError."""
        raise NotImplementedError

    async def _to_end(self, child: asyncio.subprocess.Process, *pumps: asyncio.Task[None]) -> int:
        """Wait for the command; what it leaves behind hangs up with its client.

        pumps: what carries its output, which is delivered whole before its end is told.
        """
        ended = asyncio.ensure_future(child.wait())
        gone = asyncio.ensure_future(self._process.channel.wait_closed())
        await asyncio.wait({ended, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            await self._hang_up(child, ended)
        while not gone.done() and (left := [each for each in pumps if not each.done()]):
            await asyncio.wait({gone, *left}, timeout=LINGER_SECONDS)
            if self._reading == len([each for each in left if not each.done()]):
                break  # all of them wait for a child that keeps the output open
        for pump in pumps:
            pump.cancel()
        gone.cancel()
        return await ended

    async def _hang_up(self, child: asyncio.subprocess.Process, ended: asyncio.Future[int]) -> None:
        for number in (signal.SIGHUP, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            await asyncio.wait({ended}, timeout=HANGUP_SECONDS)

    async def _carry(self, source: int, to: asyncssh.SSHWriter[bytes]) -> None:
        """Carry the command's output to its client, no faster than that takes it."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=CHUNK)
        pipe = os.fdopen(source, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while data := await self._read(reader):
                to.write(data)
                await to.drain()
        except (OSError, asyncssh.Error):  # a terminal whose last user has gone; or the client has
            return
        finally:
            transport.close()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        self._reading += 1
        try:
            return await reader.read(CHUNK)
        finally:
            self._reading -= 1

    async def _feed(self, to: int, group: int) -> None:
        """Carry what the client types, and what it asks beside it, to the command."""
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(to, "wb", buffering=0)
        transport, protocol = await loop.connect_write_pipe(_writing, pipe)
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        try:
            while True:
                try:
                    data = await self._process.stdin.read(CHUNK)
                except asyncssh.TerminalSizeChanged as changed:
                    self.resize(changed.width, changed.height)
                    continue
                except (asyncssh.SignalReceived, asyncssh.BreakReceived) as asked:
                    name = getattr(asked, "signal", "INT")
                    number = getattr(signal, f"SIG{name}", None)
                    if number is not None:
                        with suppress(ProcessLookupError):
                            os.killpg(group, number)
                    continue
                if not data:
                    return
                writer.write(data)
                await writer.drain()
        except (OSError, asyncssh.Error):
            return
        finally:
            writer.close()

    def resize(self, width: int, height: int) -> None:
        """Tell the command how large its terminal is."""


def _writing() -> asyncio.StreamReaderProtocol:
    """Return what looks after a pipe that is written to: it knows when there is room again."""
    return asyncio.StreamReaderProtocol(asyncio.StreamReader())


class _Pipes(_Session):
    async def run(self, words: list[str], environment: dict[str, str]) -> int:
        (in_read, in_write), (out_read, out_write), (err_read, err_write) = (
            os.pipe() for _ in range(3)
        )
        theirs = (in_read, out_write, err_write)
        try:
            child = await asyncio.create_subprocess_exec(
                *words, stdin=in_read, stdout=out_write, stderr=err_write,
                env=environment, start_new_session=True,
            )  # fmt: skip
        except OSError:
            for each in (in_write, out_read, err_read):
                os.close(each)
            raise
        finally:
            for each in theirs:
                os.close(each)
        feeding = asyncio.create_task(self._feed(in_write, child.pid))
        out = asyncio.create_task(self._carry(out_read, self._process.stdout))
        err = asyncio.create_task(self._carry(err_read, self._process.stderr))
        try:
            return await self._to_end(child, out, err)
        finally:
            feeding.cancel()


class _Terminal(_Session):
    _master = -1

    async def run(self, words: list[str], environment: dict[str, str]) -> int:
        self._master, slave = pty.openpty()
        width, height, *_ = self._process.term_size
        self.resize(width, height)
        try:
            child = await asyncio.create_subprocess_exec(
                *words, stdin=slave, stdout=slave, stderr=slave,
                env={**environment, "TERM": self._process.term_type or "dumb"},
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )  # fmt: skip
        finally:
            os.close(slave)
        feeding = asyncio.create_task(self._feed(os.dup(self._master), child.pid))
        out = asyncio.create_task(self._carry(os.dup(self._master), self._process.stdout))
        try:
            return await self._to_end(child, out)
        finally:
            feeding.cancel()
            os.close(self._master)
            self._master = -1

    def resize(self, width: int, height: int) -> None:
        if self._master >= 0:
            size = struct.pack("HHHH", height & 0xFFFF, width & 0xFFFF, 0, 0)
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
