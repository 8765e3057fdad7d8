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
