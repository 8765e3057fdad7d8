"""What passes through a tunnel, on both sides of the relay: frames of `kind | stream | payload`.

An agent has one websocket, which carries the streams of all connections into its host; a client
has one websocket for each connection, whose stream is 0. Each side may send WINDOW bytes of data
on a stream before the other has said, by `CREDIT`, that it has done with some. So a reader that
is slow stops its own stream, and nothing on the way has to keep more than WINDOW of it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

AGENT_PATH = "/agent/tunnel"
CLIENT_PATH = "/tunnel"

OPEN, OPENED, DATA, END, CLOSE, CREDIT, HELLO = range(1, 8)
"""OPEN: JSON, what to connect to. OPENED: JSON, it is connected. END: no more data from this side.
CLOSE: it is over; text: why. CREDIT: u32, so many bytes are done with. HELLO: JSON, the agent's
first frame: what its owner allows."""

WINDOW = 1 << 20
CHUNK = 64 << 10
"""Most bytes of data in one frame."""
FRAME_BYTES_MAX = CHUNK + 5
REASON_LENGTH_MAX = 200

_HEAD = struct.Struct(">BI")
_COUNT = struct.Struct(">I")


class FrameWrong(ValueError):
    """That is no frame, or none that may come now."""


class Frame(NamedTuple):
    """One frame."""

    kind: int
    stream: int
    payload: bytes

    @classmethod
    def read(cls, message: object) -> Frame:
        """Read a message. Raises: FrameWrong."""
        if not isinstance(message, bytes) or not _HEAD.size <= len(message) <= FRAME_BYTES_MAX:
            raise FrameWrong("not a frame")
        kind, stream = _HEAD.unpack_from(message)
        if not OPEN <= kind <= HELLO:
            raise FrameWrong(f"no kind {kind}")
        return cls(kind, stream, message[_HEAD.size :])

    @property
    def credited(self) -> int:
        """Return how much credit is given. Raises: FrameWrong."""
        if len(self.payload) != _COUNT.size:
            raise FrameWrong("credit is four bytes")
        number: int = _COUNT.unpack(self.payload)[0]
        return number

    @property
    def said(self) -> Mapping[str, Any]:
        """Return the JSON object that it carries. Raises: FrameWrong."""
        try:
            found = json.loads(self.payload)
        except (ValueError, RecursionError):
            raise FrameWrong("not JSON") from None
        if not isinstance(found, dict):
            raise FrameWrong("not an object")
        return found

    @property
    def reason(self) -> str:
        """Return why a stream is over; what a terminal would act upon is left out."""
        text = self.payload.decode(errors="replace")[:REASON_LENGTH_MAX]
        return "".join(each for each in text if each.isprintable())


def frame(kind: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame as bytes."""
    return _HEAD.pack(kind, stream) + payload


def credit(stream: int, count: int) -> bytes:
    """Return the frame that lets the other side send so many bytes more."""
    return _HEAD.pack(CREDIT, stream) + _COUNT.pack(count)


def spoken(kind: int, stream: int, said: Mapping[str, object]) -> bytes:
    """Return a frame that carries JSON."""
    return _HEAD.pack(kind, stream) + json.dumps(said).encode()


def closing(stream: int, reason: str) -> bytes:
    """Return the frame that ends a stream."""
    return _HEAD.pack(CLOSE, stream) + reason[:REASON_LENGTH_MAX].encode()
