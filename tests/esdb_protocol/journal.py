"""A file of what was written, one line a write, so that a killed server can come back."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Stored:
    """An event in the log. `created_ticks` are units of 100 ns since 1970, as on the wire."""

    id: str
    stream: str
    revision: int
    position: int
    created_ticks: int
    type: str
    content_type: str
    data: bytes
    custom_metadata: bytes

    def with_data(self, data: bytes) -> Stored:
        """Return this event with other contents."""
        return replace(self, data=data)


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the journal: events written together, or streams closed for ever."""

    events: list[Stored]
    tombstones: list[str]


class Journal:
    """Appends lines; a torn last line, left by a kill in the middle of a write, is ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("ab")

    def write(self, events: Sequence[Stored], *, tombstones: Sequence[str] = ()) -> None:
        """Hand one change to the operating system, which outlives this process."""
        line = {"events": [_packed(event) for event in events], "tombstones": list(tombstones)}
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()

    def replay(self) -> Iterator[Change]:
        """Yield the changes written so far, oldest first."""
        with self._path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    change = json.loads(line)
                    events = [_unpacked(event) for event in change["events"]]
                    yield Change(events, change["tombstones"])


def _packed(event: Stored) -> dict[str, object]:
    return asdict(event) | {
        "data": b64encode(event.data).decode(),
        "custom_metadata": b64encode(event.custom_metadata).decode(),
    }


def _unpacked(fields: dict[str, str]) -> Stored:
    binary = {name: b64decode(fields[name]) for name in ("data", "custom_metadata")}
    return Stored(**(fields | binary))  # type: ignore[arg-type]  # the journal's own JSON
