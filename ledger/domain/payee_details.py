"""To which bank account an owner is paid: proposed, told to all, and confirmed after a wait."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from ledger.domain.bank_details import BankDetails
from ledger.domain.ids import UserId
from ledger.domain.payees import Payee, PayeeOf
from ledger.domain.payout_events import (
    BankDetailsConfirmed,
    BankDetailsProposed,
    BankDetailsWithdrawn,
)
from ledger.domain.refusal import Refusal, Unknown


class DetailsUnknown(Unknown):
    """There is no such bank account waiting to be confirmed."""


class DetailsWait(Refusal):
    """A new bank account waits before it may be used, so that others can object.

    Confirm it at `usable_from`. Anybody of the organisation can withdraw it until then.
    """


def propose_details(
    payee: Payee,
    of: PayeeOf,
    details: BankDetails,
    *,
    details_id: UUID,
    wait_seconds: int,
    by_user: UserId,
    now: datetime,
) -> list[BankDetailsProposed]:
    """Decide that a bank account waits to be confirmed; one proposed before is given up."""
    for known in (payee.proposed, payee.details):
        if known is not None and known.details_id == details_id:
            return []
    return [
        BankDetailsProposed(
            account_id=of.account_id,
            tenant_id=of.tenant_id,
            currency=of.currency,
            details_id=details_id,
            kind=details.kind,
            masked=details.masked,
            usable_from=now + timedelta(seconds=wait_seconds),
            by_user=by_user,
            at=now,
        )
    ]


def confirm_details(
    payee: Payee, details_id: UUID, *, by_user: UserId, now: datetime
) -> list[BankDetailsConfirmed]:
    """Decide that the owner is paid to a bank account that was proposed.

    Raises: DetailsUnknown, DetailsWait.
    """
    if payee.details is not None and payee.details.details_id == details_id:
        return []
    proposed = _proposed(payee, details_id)
    if now < proposed.usable_from:
        raise DetailsWait(usable_from=proposed.usable_from.isoformat())
    return [
        BankDetailsConfirmed(
            account_id=proposed.account_id, details_id=details_id, by_user=by_user, at=now
        )
    ]


def withdraw_details(
    payee: Payee, details_id: UUID, *, by_user: UserId, now: datetime
) -> list[BankDetailsWithdrawn]:
    """Decide that a proposed bank account is not used. Raises: DetailsUnknown."""
    proposed = _proposed(payee, details_id)
    return [
        BankDetailsWithdrawn(
            account_id=proposed.account_id, details_id=details_id, by_user=by_user, at=now
        )
    ]


def _proposed(payee: Payee, details_id: UUID) -> BankDetailsProposed:
    if payee.proposed is None or payee.proposed.details_id != details_id:
        raise DetailsUnknown(details_id=details_id)
    return payee.proposed
