"""Stripe Connect as what pays owners: Express accounts, separate charges and transfers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import stripe

from ledger.domain.connect_events import BankPayoutState, ConnectedState
from ledger.payments.connect_port import (
    AccountState,
    BankPayoutSaid,
    ReversalState,
    TransferState,
)
from ledger.payments.stripe_asking import PAGE_SIZE, ask, id_of

MISSING_MAX = 20
STATES: Mapping[str, BankPayoutState] = {
    "paid": "arrived",
    "failed": "failed",
    "canceled": "failed",
}


class StripeConnect:
    """Owners who are paid over Stripe. client: with our key."""

    client: stripe.StripeClient

    def connect(self, *, country: str, marks: Mapping[str, str], key: str) -> AccountState:
        """Make an Express account that may be transferred to."""
        asked: Any = {
            "type": "express",
            "capabilities": {"transfers": {"requested": True}},
            "metadata": dict(marks),
        }
        if country:
            asked["country"] = country
        made = ask(lambda: self.client.v1.accounts.create(asked, {"idempotency_key": key}))
        return _account(made.to_dict())

    def connected(self, account: str) -> AccountState:
        """Return an Account."""
        return _account(ask(lambda: self.client.v1.accounts.retrieve(account)).to_dict())

    def onboarding(self, account: str, *, back: str, again: str) -> str:
        """Make an AccountLink."""
        asked: Any = {
            "account": account,
            "type": "account_onboarding",
            "return_url": back,
            "refresh_url": again,
        }
        return str(ask(lambda: self.client.v1.account_links.create(asked)).url)

    def dashboard(self, account: str) -> str:
        """Make a LoginLink."""
        return str(ask(lambda: self.client.v1.accounts.login_links.create(account)).url)

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
        """Make a Transfer."""
        asked: Any = {
            "amount": minor,
            "currency": currency.lower(),
            "destination": account,
            "transfer_group": group,
            "metadata": dict(marks),
        }
        made = ask(lambda: self.client.v1.transfers.create(asked, {"idempotency_key": key}))
        return _transfer(made.to_dict())

    def transfers_of(self, group: str) -> list[TransferState]:
        """Return the Transfers of a group."""
        asked: Any = {"transfer_group": group, "limit": PAGE_SIZE}
        found = ask(lambda: self.client.v1.transfers.list(asked)).data
        return [_transfer(each.to_dict()) for each in found]

    def transfer_state(self, transfer: str) -> TransferState:
        """Return a Transfer."""
        return _transfer(ask(lambda: self.client.v1.transfers.retrieve(transfer)).to_dict())

    def take_back(
        self, transfer: str, *, minor: int, marks: Mapping[str, str], key: str
    ) -> ReversalState:
        """Make a TransferReversal."""
        asked: Any = {"amount": minor, "metadata": dict(marks)}
        made = ask(
            lambda: self.client.v1.transfers.reversals.create(
                transfer, asked, {"idempotency_key": key}
            )
        )
        return _reversal(made.to_dict())

    def reversals_of(self, transfer: str) -> list[ReversalState]:
        """Return the TransferReversals of a Transfer."""
        asked: Any = {"limit": PAGE_SIZE}
        found = ask(lambda: self.client.v1.transfers.reversals.list(transfer, asked)).data
        return [_reversal(each.to_dict()) for each in found]

    def bank_payout(self, account: str, payout: str) -> BankPayoutSaid:
        """Return a Payout of a connected account."""
        said = ask(
            lambda: self.client.v1.payouts.retrieve(payout, None, {"stripe_account": account})
        ).to_dict()
        return BankPayoutSaid(
            payout=said["id"],
            state=STATES.get(said["status"], "on-its-way"),
            minor=said["amount"],
            currency=said["currency"].upper(),
            arrives_on=_day(said["arrival_date"]),
            words=said.get("failure_message") or said.get("failure_code") or "",
        )


def _account(said: dict[str, Any]) -> AccountState:
    wants = said.get("requirements") or {}
    missing = [*(wants.get("past_due") or ()), *(wants.get("currently_due") or ())]
    transfers = (said.get("capabilities") or {}).get("transfers")
    state: ConnectedState = "restricted"
    if transfers == "active" and said.get("payouts_enabled"):
        state = "ready"
    elif not said.get("details_submitted"):
        state = "details-missing"
    return AccountState(
        account=said["id"],
        state=state,
        missing=tuple(dict.fromkeys(missing))[:MISSING_MAX],
        words="" if state == "ready" else _why(wants, transfers),
        marks=said.get("metadata") or {},
    )


def _why(wants: Mapping[str, Any], transfers: str | None) -> str:
    """Return why an account is not ready, in Stripe's words where it has any."""
    said = [each["reason"] for each in wants.get("errors") or () if each.get("reason")]
    if said:
        return " ".join(said)
    reason = wants.get("disabled_reason") or ""
    if reason:
        return str(reason).replace("requirements.", "").replace("_", " ").replace(".", ", ")
    return "Stripe looks at what was entered" if transfers == "pending" else ""


def _transfer(said: dict[str, Any]) -> TransferState:
    return TransferState(
        transfer=said["id"],
        account=id_of(said.get("destination")),
        minor=said["amount"],
        currency=said["currency"].upper(),
        made_on=_day(said["created"]),
        marks=said.get("metadata") or {},
    )


def _reversal(said: dict[str, Any]) -> ReversalState:
    return ReversalState(
        reversal=said["id"],
        transfer=id_of(said["transfer"]),
        minor=said["amount"],
        currency=said["currency"].upper(),
        marks=said.get("metadata") or {},
    )


def _day(moment: int) -> date:
    return datetime.fromtimestamp(moment, UTC).date()
