"""A relay of TCP connections in front of the server, able to cut one in the middle of a call."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

CHUNK_BYTES = 256 * 1024
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of no time: the peer sees a reset


class Relay:
    """Listens on `port` of 127.0.0.1 (0: any free one) and passes bytes on to `backend_port`."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._backend_port = 0
        self._pairs: dict[int, tuple[socket.socket, socket.socket]] = {}
        self._lock = threading.Lock()

    def start(self, backend_port: int) -> None:
        """Begin to pass connections on."""
        self._backend_port = backend_port
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def cut(self, peer: str) -> None:
        """Reset the client's connection that the backend knows as `peer` ("ipv4:host:port")."""
        with self._lock:
            client, backend = self._pairs.pop(int(peer.rpartition(":")[2]))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        for end in (client, backend):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RD)
            end.close()

    def _accept(self) -> None:
        while True:
            client, _address = self._listener.accept()
            backend = socket.create_connection(("127.0.0.1", self._backend_port))
            for end in (client, backend):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            key: int = backend.getsockname()[1]
            with self._lock:
                self._pairs[key] = (client, backend)
            for source, sink in ((client, backend), (backend, client)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy until either side ends, then end the other."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(CHUNK_BYTES):
            sink.sendall(chunk)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
