"""What carries one message to one receiver. It touches no database: threads use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

TIMEOUT_SECONDS = 10.0
"""How long a receiver may take for one step, and for all of it twice that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message on its way. message_id: the same whenever it is sent again.

    to: an address of e-mail or a URL. secrets: what a webhook is signed with.
    """

    message_id: str
    to: str
    title: str
    body: str
    secrets: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an attempt. status: as the receiver answered; None: it did not.

    words: of an answer its beginning, or what went wrong. is_gone: the receiver wants no more.
    """

    is_through: bool
    status: int | None = None
    words: str = ""
    is_gone: bool = False


class Sender(Protocol):
    """Carries messages."""

    def send(self, message: Message) -> Outcome:
        """Carry one; a failure is an outcome and never raised."""
        ...
