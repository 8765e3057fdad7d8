"""What a host says of itself, as parts of its registration (see wire.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .strict import Length, Message

Word = Annotated[str, Length(1, 40)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforced(Message):
    """One thing that is kept from leased work, and by what; empty where nothing keeps it."""

    what: Word
    by: Annotated[str, Length(0, 200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Message):
    """How it is measured what a GPU does. busy_by: as the agent's `BusyBy`; empty: it is not.

    energy: its card counts what it takes.
    """

    gpu_uuid: Annotated[str, Length(1, 200)]
    busy_by: Annotated[str, Length(0, 40)]
    energy: bool
