"""nginx with the configuration that we ship, on free ports and with a certificate of its own."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = ROOT / "deploy" / "nginx" / "offpeak.conf"
NAME = "gpu.example"
START_SECONDS = 60.0
AROUND = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/offpeak.conf;
}}
"""


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where nginx listens, and the certificate that it shows."""

    port: int
    plain_port: int
    certificate: Path

    @property
    def base_url(self) -> str:
        """Return how people reach the site."""
        return f"https://{NAME}:{self.port}"

    def tls(self) -> ssl.SSLContext:
        """Return what trusts this certificate and no other."""
        return ssl.create_default_context(cafile=str(self.certificate))

    def client(self) -> httpx.Client:
        """Return a client that finds the name on this machine."""
        return httpx.Client(
            base_url=f"https://127.0.0.1:{self.port}",
            headers={"Host": f"{NAME}:{self.port}"},
            verify=self.tls(),
            timeout=30.0,
            event_hooks={"request": [_name_server]},
        )


def _name_server(request: httpx.Request) -> None:
    request.extensions["sni_hostname"] = NAME


def tool(name: str) -> str:
    """Return where a program of the system is, or skip the test and say so."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin")
    if found is None:
        pytest.skip(f"no {name} here (see tests/install-tools.sh)")
    return found


@contextmanager
def proxied(folder: Path, *backends: int) -> Iterator[Proxy]:
    """Run nginx in front of the web processes that listen on these ports."""
    nginx = tool("nginx")
    proxy = Proxy(free_port(), free_port(), folder / "gpu.crt")
    subprocess.run(
        [
            tool("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}",
            "-keyout", str(folder / "gpu.key"), "-out", str(proxy.certificate),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    (folder / "offpeak.conf").write_text(configured(folder, proxy, backends))
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder))
    command = [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf")]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(proxy.port)
        yield proxy
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def configured(folder: Path, proxy: Proxy, backends: Sequence[int]) -> str:
    """Return our configuration with only ports and files changed; each change must be found."""
    text = CONFIGURATION.read_text()
    [server] = re.findall("^ *server 127.0.0.1:8000 .*$", text, re.MULTILINE)
    for ours, here in {
        server: "\n".join(server.replace("8000", str(backend)) for backend in backends),
        "listen 80;": f"listen 127.0.0.1:{proxy.plain_port};",
        "listen 443 ssl": f"listen 127.0.0.1:{proxy.port} ssl",
        "/etc/nginx/tls/gpu.example.crt": str(proxy.certificate),
        "/etc/nginx/tls/gpu.example.key": str(folder / "gpu.key"),
    }.items():
        assert text.count(ours) == 1, ours
        text = text.replace(ours, here)
    return text


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "nginx does not listen"
        time.sleep(0.05)
