"""What a check of a round found wrong."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.domain.ids import BidId, LeaseId


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, in a sentence.

    lease_id: the grant without which it would not be; None: the round as a whole is at fault.
    """

    said: str
    lease_id: LeaseId | None = None

    def __str__(self) -> str:
        return self.said if self.lease_id is None else f"lease {self.lease_id}: {self.said}"


class RoundUnsound(Exception):
    """A round must not be appended: a check found it at fault, or it could not be made at all.

    bid_id: of the bid that was tried when it broke off, if that is known.
    """

    def __init__(self, said: str, bid_id: BidId | None = None) -> None:
        super().__init__(said)
        self.bid_id = bid_id
