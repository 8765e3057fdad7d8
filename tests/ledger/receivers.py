"""Receivers of notices on loopback: an HTTP server and a mail server that do as they are told."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """An HTTP receiver. answers: status by path, 200 where nothing is said. open: requests to
    `/slow` are not answered before it is set."""

    url: str = ""
    answers: dict[str, int] = field(default_factory=dict)
    posts: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    open: threading.Event = field(default_factory=threading.Event)

    def at(self, path: str) -> list[tuple[dict[str, str], bytes]]:
        return [(headers, body) for where, headers, body in list(self.posts) if where == path]


@contextmanager
def receiving() -> Iterator[Receiver]:
    known = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            if self.path == "/slow":
                known.open.wait(60)
            known.posts.append((self.path, headers, body))
            self.send_response(known.answers.get(self.path, 200))
            if self.path == "/moved":
                self.send_header("Location", "/hook")
            self.end_headers()
            self.wfile.write(b"heard \x00 you")

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    known.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield known
    finally:
        known.open.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Mailbox:
    """A mail server. answer: what it says to a recipient. secured: mails that came by TLS."""

    port: int = 0
    answer: str = "250 ok"
    mails: list[tuple[str, str]] = field(default_factory=list)
    secured: int = 0


@contextmanager
def mail_server(tls: ssl.SSLContext | None = None, *, at_once: bool = False) -> Iterator[Mailbox]:
    """Take mail in. tls: offered by STARTTLS; at_once: from the first byte on instead."""
    known = Mailbox()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # whoever does not trust the certificate hangs up
                if tls is not None and at_once:
                    self.secure(tls)
                self.talk()
            if isinstance(self.connection, ssl.SSLSocket):
                self.connection.close()

        def secure(self, by: ssl.SSLContext) -> None:
            self.connection = by.wrap_socket(self.connection, server_side=True)
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb", buffering=0)

        def talk(self) -> None:
            self.say("220 mail.example")
            to = ""
            while line := self.rfile.readline().decode().strip():
                word = line.split()[0].upper()
                if word == "RCPT":
                    to = line.partition("<")[2].partition(">")[0]
                    self.say(known.answer)
                elif word == "DATA":
                    self.say("354 go on")
                    lines = []
                    while (text := self.rfile.readline().decode()) != ".\r\n":
                        lines.append(text)
                    known.mails.append((to, "".join(lines).replace("\r\n", "\n")))
                    self.say("250 taken")
                    known.secured += isinstance(self.connection, ssl.SSLSocket)
                elif word == "EHLO" and tls is not None and not at_once:
                    self.say("250-mail.example")
                    self.say("250 STARTTLS")
                elif word == "STARTTLS" and tls is not None:
                    self.say("220 go on")
                    self.secure(tls)
                elif word == "QUIT":
                    self.say("221 bye")
                    return
                else:
                    self.say("250 ok")

        def say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    known.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield known
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def use_mail(settings: Any, port: int) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", port
    settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
    settings.EMAIL_HOST_USER = settings.EMAIL_HOST_PASSWORD = ""
    settings.DEFAULT_FROM_EMAIL = "offpeak@gpu.example"
