"""How a party is named on invoices: kept apart from the party, since it may change at any time."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from ledger.domain.holds import need_text
from ledger.domain.ids import TenantId, UserId
from ledger.domain.invoice_events import BillingDetailsSet, PartyDetails, TaxScheme
from ledger.domain.refusal import Invalid
from ledger.domain.tax import vat_id_read

NAME_LENGTH_MAX = 120
ADDRESS_LINES_MAX = 6
DUE_DAYS_MAX = 365
DUE_DAYS_DEFAULT = 30
EMAIL_LENGTH_MAX = 254
PURCHASE_ORDER_LENGTH_MAX = 40
_COUNTRY = re.compile(r"[A-Z]{2}")
_EMAIL = re.compile(r"[^@\s<>,;:\"]+@[^@\s<>,;:\"]+\.[^@\s<>,;:\"]+")


class BillingNameMissing(Invalid):
    """An invoice names who it is for: give the legal name."""


class CountryUnreadable(Invalid):
    """A country is its two-letter ISO 3166 code, such as DE."""


class AddressTooLong(Invalid):
    """An address has at most six lines."""


class EmailUnreadable(Invalid):
    """An invoice is sent to one address, such as invoices@example.org."""


class PurchaseOrderTooLong(Invalid):
    """A purchase order's number has at most forty characters."""


class DueDaysOutOfRange(Invalid):
    """An invoice is due in between 0 and 365 days."""


@dataclass(frozen=True, slots=True)
class BillingDetails:
    """What is on record of one party."""

    STREAM: ClassVar[str] = "billing"

    newest: BillingDetailsSet

    @classmethod
    def evolve(cls, state: BillingDetails | None, event: BillingDetailsSet, /) -> BillingDetails:
        """Return the details after `event`: what was set last."""
        return cls(event)


def details_read(details: PartyDetails) -> PartyDetails:
    """Return details as they are printed.

    Raises: BillingNameMissing, CountryUnreadable, AddressTooLong, VatIdUnreadable,
        EmailUnreadable, PurchaseOrderTooLong, TextUnreadable.
    """
    need_text(details.name, *details.address, length_max=NAME_LENGTH_MAX)
    need_text(details.purchase_order, length_max=NAME_LENGTH_MAX)
    if len(details.purchase_order.strip()) > PURCHASE_ORDER_LENGTH_MAX:
        raise PurchaseOrderTooLong()
    if not details.name.strip():
        raise BillingNameMissing()
    lines = tuple(line.strip() for line in details.address if line.strip())
    if len(lines) > ADDRESS_LINES_MAX:
        raise AddressTooLong()
    country = details.country.strip().upper()
    if country and not _COUNTRY.fullmatch(country):
        raise CountryUnreadable(given=details.country[:40])
    return PartyDetails(
        name=details.name.strip(),
        address=lines,
        country=country,
        vat_id=vat_id_read(details.vat_id),
        email=_email_read(details.email.strip()),
        purchase_order=details.purchase_order.strip(),
    )


def _email_read(text: str) -> str:
    if text and (len(text) > EMAIL_LENGTH_MAX or not _EMAIL.fullmatch(text)):
        raise EmailUnreadable(given=ascii(text[:40]))
    return text


def set_details(
    state: BillingDetails | None,
    *,
    party_id: UUID,
    tenant_id: TenantId,
    details: PartyDetails,
    scheme: TaxScheme,
    due_days: int,
    issues_by_itself: bool,
    by: UserId,
    now: datetime,
) -> list[BillingDetailsSet]:
    """Decide what is on record of a party from now on; issued invoices keep what they say.

    Raises: DueDaysOutOfRange and what `details_read` raises.
    """
    if not 0 <= due_days <= DUE_DAYS_MAX:
        raise DueDaysOutOfRange()
    event = BillingDetailsSet(
        party_id=party_id,
        tenant_id=tenant_id,
        details=details_read(details),
        scheme=scheme,
        due_days=due_days,
        issues_by_itself=issues_by_itself,
        by_user=by,
        at=now,
    )
    if state is not None and replace(state.newest, by_user=by, at=now) == event:
        return []
    return [event]
