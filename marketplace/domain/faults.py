"""What a check of a round found wrong."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.domain.ids import LeaseId


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, in a sentence.

    lease_id: the grant without which it would not be; None: the round as a whole is at fault.
    """

    said: str
    lease_id: LeaseId | None = None

    def __str__(self) -> str:
        return self.said if self.lease_id is None else f"lease {self.lease_id}: {self.said}"
