"""What a payment service does for owners who are paid by it: accounts there, transfers to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from ledger.domain.connect_events import BankPayoutState, ConnectedState


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountState:
    """An owner's account at the service as it stands. missing: what it wants to know."""

    account: str
    state: ConnectedState
    missing: tuple[str, ...]
    words: str
    marks: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferState:
    """A transfer to an owner's account. made_on: the day, in UTC."""

    transfer: str
    account: str
    minor: int
    currency: str
    made_on: date
    marks: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReversalState:
    """What came back of a transfer."""

    reversal: str
    transfer: str
    minor: int
    currency: str
    marks: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BankPayoutSaid:
    """A payout from an owner's account at the service to the owner's bank."""

    payout: str
    state: BankPayoutState
    minor: int
    currency: str
    arrives_on: date
    words: str


class Connecting(Protocol):
    """A payment service that pays owners. Every method may raise PaymentsAway, PaymentsRefused."""

    def connect(self, *, country: str, marks: Mapping[str, str], key: str) -> AccountState:
        """Make an account for an owner. country: empty: the platform's own."""
        ...

    def connected(self, account: str) -> AccountState:
        """Return an owner's account as it stands."""
        ...

    def onboarding(self, account: str, *, back: str, again: str) -> str:
        """Return a page on which an owner tells the service what it wants to know.

        It can be used once, within minutes. back: where the owner comes back to; again: where to if
        the page cannot be used any more.
        """
        ...

    def dashboard(self, account: str) -> str:
        """Return a page on which an owner sees its account at the service. It can be used once."""
        ...

    def transfer(
        self,
        *,
        account: str,
        minor: int,
        currency: str,
        group: str,
        marks: Mapping[str, str],
        key: str,
    ) -> TransferState:
        """Move money of ours to an owner's account. group: by which transfers are found again.

        Raises: PaymentsRefused; its code is `balance_insufficient` where we have too little there.
        """
        ...

    def transfers_of(self, group: str) -> list[TransferState]:
        """Return the transfers of a group, newest first."""
        ...

    def transfer_state(self, transfer: str) -> TransferState:
        """Return a transfer."""
        ...

    def take_back(
        self, transfer: str, *, minor: int, marks: Mapping[str, str], key: str
    ) -> ReversalState:
        """Take a part of a transfer back."""
        ...

    def reversals_of(self, transfer: str) -> list[ReversalState]:
        """Return what came back of a transfer, newest first."""
        ...

    def bank_payout(self, account: str, payout: str) -> BankPayoutSaid:
        """Return a payout from an owner's account to the owner's bank."""
        ...
