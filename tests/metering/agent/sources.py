"""Sources that work begins with: git over TLS at an address of this machine, on a real host."""

from __future__ import annotations

import datetime
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from metering.agent.runtimes import packet_filter
from tests.git_server.server import answer


@dataclass
class Forge:
    """A server of repositories and files.

    address: of its https. asked: what it was asked, with what it was shown. redirects: paths and
    where they lead. needs: what it must be shown, as `Authorization` has it; empty: nothing.
    holds: until this is set it answers nothing but the first question.
    """

    address: str
    authority: Path
    asked: list[tuple[str, str]] = field(default_factory=list)
    redirects: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    needs: str = ""
    held: threading.Event = field(default_factory=threading.Event)
    heard: threading.Event = field(default_factory=threading.Event)

    @property
    def place(self) -> str:
        """Return its host and port."""
        return self.address.removeprefix("https://")


def own_address() -> str:
    """Return an address of this machine that is not its loopback: leased work has one of those."""
    found = packet_filter.own_addresses()
    if not found:
        pytest.skip("this machine has no address but its loopback")
    return found[0].partition("/")[0]


@contextmanager
def forge(root: Path, folder: Path) -> Iterator[Forge]:
    """Serve the repositories below a folder; folder: for its certificate."""
    host = own_address()
    certificate, key = _certificate(folder, host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    made: list[Forge] = []

    class Handler(BaseHTTPRequestHandler):
        def do_any(self) -> None:
            own = made[0]
            own.asked.append((f"{self.command} {self.path}", self.headers.get("Authorization", "")))
            own.heard.set()
            own.held.wait(60)
            path = self.path.partition("?")[0]
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if own.needs and self.headers.get("Authorization") != own.needs:
                self._say(401, [("WWW-Authenticate", "Basic realm=x")], b"")
            elif path in own.redirects:
                self._say(302, [("Location", own.redirects[path])], b"")
            elif path in own.files:
                self._say(200, [], own.files[path])
            else:
                self._say(*answer(root, self.command, self.path, self.headers, body))

        do_GET = do_POST = do_any  # noqa: N815  # the base class calls them

        def _say(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    made.append(Forge(f"https://{host}:{server.server_port}", certificate))
    made[0].held.set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made[0]
    finally:
        made[0].held.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _certificate(folder: Path, host: str) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a forge of tests")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / "forge.pem", folder / "forge.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, secret
