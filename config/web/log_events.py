"""Bytes of a log as server-sent events."""

from __future__ import annotations

import json

from marketplace.logs import Figures


def frames_of(offset: int, start: int, data: bytes, *, whole: bool) -> tuple[bytes, int]:
    """Return events for bytes of a log, and the offset after them; no character is cut in two.

    whole: nothing follows, so that what is left of a character is sent as it is.
    """
    frames = b""
    if start > offset and data:
        frames = f"event: dropped\nid: {start}\ndata: {start - offset}\n\n".encode()
        offset = start
    if not whole:
        data = data[: len(data) - _cut(data)]
    if data:
        offset += len(data)
        text = json.dumps(data.decode("utf-8", "replace"))
        frames += f"id: {offset}\ndata: {text}\n\n".encode()
    return frames, offset


def _cut(data: bytes) -> int:
    """Return how many bytes at the end are the beginning of a character."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue  # inside of one
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if length > back else 0
    return 0


def end_of(figures: Figures, offset: int) -> bytes:
    said = {"size": figures.size, "dropped": figures.dropped, "complete": figures.complete}
    said["more"] = not figures.ended
    return f"event: end\nid: {offset}\ndata: {json.dumps(said)}\n\n".encode()
