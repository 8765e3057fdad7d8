"""A log that has ended, as one blob: which bytes it has, and those, compressed together."""

from __future__ import annotations

import gzip
import json
from io import BytesIO
from itertools import accumulate

from marketplace.storage.logs import LogKey, OpenLogs, Part

LEVEL = 3
PIECE_BYTES = 2**20


def compressed(logs: OpenLogs, key: LogKey, parts: list[Part]) -> bytes:
    """Return the blob of a log that takes nothing more. Whose it is makes it one of a kind."""
    told = {
        "lease": str(key.lease_id),
        "host": str(key.host_id),
        "attempt": key.attempt,
        "stream": key.stream,
        "parts": [[part.base, part.size] for part in parts],
    }
    blob = BytesIO()
    with gzip.GzipFile(fileobj=blob, mode="wb", compresslevel=LEVEL, mtime=0) as file:
        file.write(json.dumps(told).encode() + b"\n")
        for part in parts:
            at = part.base
            while at < part.end:
                _, data = logs.read(key, at, min(PIECE_BYTES, part.end - at))
                file.write(data)
                at += len(data)
    return blob.getvalue()


class ClosedLog:
    """Reads such a blob; forwards without unpacking anything twice."""

    def __init__(self, blob: bytes) -> None:
        self._file = gzip.GzipFile(fileobj=BytesIO(blob))
        told = json.loads(self._file.readline())
        self.parts = [Part(base, size) for base, size in told["parts"]]
        sizes = [part.size for part in self.parts]
        self._places = list(accumulate(sizes, initial=self._file.tell()))

    def read(self, offset: int, most: int) -> tuple[int, bytes]:
        """Return where bytes begin, and those: as `OpenLogs.read`."""
        for part, place in zip(self.parts, self._places, strict=False):
            if offset < part.end:
                start = max(offset, part.base)
                self._file.seek(place + start - part.base)
                return start, self._file.read(min(most, part.end - start))
        return offset, b""
