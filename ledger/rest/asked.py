"""A request that goes a short way past Django, and what is answered to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Asked:
    """A plain request with a body. token: as sent. path: what its answer names.

    key: its Idempotency-Key, if it has one.
    """

    token: str
    body: bytes
    path: str
    request_id: UUID
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered: a status, headers, and JSON."""

    status: int
    headers: Mapping[str, str]
    content: bytes
