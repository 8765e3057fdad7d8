"""Charges as FOCUS 1.2 rows: the FinOps Open Cost and Usage Specification, as CSV.

49 columns of the specification and six of ours, which begin with x_ and come last. Costs are
written to the nano-unit, quantities to 18 places: a charge is rated in whole nano-units, so unit
price times quantity gives the cost back to within the nano-unit that the specification's rules
allow. What is not known is left empty, which means null.

Prepaid accounts are billed when they pay in (Purchase) and bear the cost when they use
(EffectiveCost); others are billed for use. Compensation is a Credit.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from ledger.domain.money import MILLIS_PER_HOUR, NANOS_PER_UNIT
from ledger.domain.periods import Period
from ledger.domain.storage import GIB_MONTH
from ledger.exports.cells import harmless
from ledger.exports.charges import Charge, Storage, Use
from ledger.exports.focus_columns import COLUMNS

VERSION = "FOCUS 1.2"
ISSUER = "Offpeak"
QUANTITY_PLACES = 18


def lines(charges: Iterable[Charge], *, period: Period) -> Iterator[str]:
    """Yield the lines of the CSV file, the header first."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(COLUMNS)
    for charge in charges:
        yield _taken(buffer)
        row = row_of(charge, period=period)
        writer.writerow(harmless(row.get(column, "") for column in COLUMNS))
    yield _taken(buffer)


def _taken(buffer: io.StringIO) -> str:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text


def row_of(charge: Charge, *, period: Period) -> dict[str, str]:
    """Return one charge as a FOCUS row; columns that are null are left out."""
    row = _who(charge, period)
    match charge.kind:
        case "usage":
            assert charge.use is not None
            row |= _usage(charge, charge.use)
        case "storage":
            assert charge.storage is not None
            row |= _storage(charge, charge.storage)
        case "purchase":
            row |= _purchase(charge)
        case "credit":
            row |= _credit(charge)
    if _is_correction(charge, period):
        row["ChargeClass"] = "Correction"
    return {column: value for column, value in row.items() if value}


def _is_correction(charge: Charge, period: Period) -> bool:
    """Tell if a charge is for a month that was closed when it was recorded."""
    of = charge.use or charge.storage
    return of is not None and Period.of(of.starts_at) < period


def _who(charge: Charge, period: Period) -> dict[str, str]:
    if charge.unit_id is None:
        sub = (f"offpeak:account/{charge.account_id}", charge.account_title, "Account")
    else:
        sub = (f"offpeak:unit/{charge.unit_id}", charge.unit_title, "Business unit")
    month = period.window
    return {
        "BillingAccountId": f"offpeak:tenant/{charge.tenant_id}",
        "BillingAccountName": charge.tenant_title,
        "BillingAccountType": "Organization",
        "BillingCurrency": charge.money.currency,
        "BillingPeriodStart": _moment(month.starts_at),
        "BillingPeriodEnd": _moment(month.ends_at),
        "InvoiceIssuerName": ISSUER,
        "PricingCurrency": charge.money.currency,
        "ProviderName": ISSUER,
        "PublisherName": ISSUER,
        "SubAccountId": sub[0],
        "SubAccountName": sub[1],
        "SubAccountType": sub[2],
        "x_JournalEntryId": str(charge.entry_id),
        "x_LeaseId": str(charge.lease_id or ""),
    }


def _usage(charge: Charge, use: Use) -> dict[str, str]:
    cost, quantity = amount(charge.money.nanos), gpu_hours(use.gpu_millis)
    price, list_price = use.price.nanos_per_gpu_hour, use.list_price.nanos_per_gpu_hour
    sku = use.sku or "GPU"
    pricing = use.service_class or "market"
    return {
        "BilledCost": amount(0) if charge.prepaid else cost,
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{sku}, lease {use.lease_id}, {quantity_text(use)} GPU-hours",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": _moment(use.starts_at),
        "ChargePeriodEnd": _moment(use.ends_at, up=True),
        "ConsumedQuantity": quantity,
        "ConsumedUnit": "GPU-Hours",
        "ContractedCost": cost,
        "ContractedUnitPrice": amount(price),
        "EffectiveCost": cost,
        "ListCost": amount(use.list_price.charge(use.gpu_millis).nanos),
        "ListUnitPrice": amount(list_price),
        "PricingCategory": "Standard" if use.provider else "Dynamic",
        "PricingCurrencyContractedUnitPrice": amount(price),
        "PricingCurrencyEffectiveCost": cost,
        "PricingCurrencyListUnitPrice": amount(list_price),
        "PricingQuantity": quantity,
        "PricingUnit": "GPU-Hours",
        "PublisherName": use.provider or ISSUER,
        "RegionId": use.region,
        "RegionName": use.region,
        "ResourceId": f"offpeak:lease/{use.lease_id}",
        "ResourceName": f"lease {use.lease_id}",
        "ResourceType": "Cloud GPU lease" if use.provider else "GPU lease",
        "ServiceCategory": "Compute",
        "ServiceName": "GPU lease",
        "ServiceSubcategory": "Virtual Machines",
        "SkuId": sku,
        "SkuMeter": "GPU time",
        "SkuPriceDetails": _json({"x_ServiceClass": pricing}),
        "SkuPriceId": f"{sku}:{pricing}",
        "Tags": _json({"cost_center": use.cost_centre}),
        "x_CostCenter": use.cost_centre,
        "x_GpuMilliseconds": str(use.gpu_millis),
        "x_EnergyMillijoules": "" if use.energy_mj is None else str(use.energy_mj),
        "x_ServiceClass": use.service_class,
    }


def _storage(charge: Charge, kept: Storage) -> dict[str, str]:
    cost, price = amount(charge.money.nanos), amount(kept.price_nanos)
    quantity = gib_months(kept.byte_seconds)
    return {
        "BilledCost": amount(0) if charge.prepaid else cost,
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{kept.title}: {quantity[:8]} GiB-months",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": _moment(kept.starts_at),
        "ChargePeriodEnd": _moment(kept.ends_at, up=True),
        "ConsumedQuantity": quantity,
        "ConsumedUnit": "GiB-Months",
        "ContractedCost": cost,
        "ContractedUnitPrice": price,
        "EffectiveCost": cost,
        "ListCost": cost,
        "ListUnitPrice": price,
        "PricingCategory": "Standard",
        "PricingCurrencyContractedUnitPrice": price,
        "PricingCurrencyEffectiveCost": cost,
        "PricingCurrencyListUnitPrice": price,
        "PricingQuantity": quantity,
        "PricingUnit": "GiB-Months",
        "ResourceId": f"offpeak:volume/{kept.volume_id}",
        "ResourceName": kept.title,
        "ResourceType": "Volume",
        "ServiceCategory": "Storage",
        "ServiceName": "Volume storage",
        "ServiceSubcategory": "File Storage",
        "SkuId": "VOLUME",
        "SkuMeter": "Stored files",
        "SkuPriceId": "VOLUME:GiB-Month",
        "Tags": _json({"cost_center": kept.cost_centre}),
        "x_CostCenter": kept.cost_centre,
    }


def _purchase(charge: Charge) -> dict[str, str]:
    paid = amount(charge.money.nanos)
    return _once(charge) | {
        "BilledCost": paid,
        "ChargeCategory": "Purchase",
        "ChargeDescription": f"Funds paid in: {charge.reference}",
        "ContractedCost": paid,
        "ContractedUnitPrice": "1",
        "EffectiveCost": amount(0),
        "ListCost": paid,
        "ListUnitPrice": "1",
        "PricingCategory": "Standard",
        "PricingCurrencyContractedUnitPrice": "1",
        "PricingCurrencyEffectiveCost": amount(0),
        "PricingCurrencyListUnitPrice": "1",
        "PricingQuantity": paid,
        "PricingUnit": "Credits",
        "SkuId": "FUNDS",
        "SkuMeter": "Prepaid funds",
        "SkuPriceId": "FUNDS:1",
    }


def _credit(charge: Charge) -> dict[str, str]:
    given = amount(charge.money.nanos)
    return _once(charge) | {
        "BilledCost": amount(0) if charge.prepaid else given,
        "ChargeCategory": "Credit",
        "ChargeDescription": f"Compensation: lease {charge.lease_id} was reclaimed by its owner",
        "ContractedCost": given,
        "EffectiveCost": given,
        "ListCost": given,
        "PricingCurrencyEffectiveCost": given,
    }


def _once(charge: Charge) -> dict[str, str]:
    """Return what charges have in common that happen once: their period is the day."""
    day = charge.at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return {
        "ChargeFrequency": "One-Time",
        "ChargePeriodStart": _moment(day),
        "ChargePeriodEnd": _moment(day + timedelta(days=1)),
        "ServiceCategory": "Other",
        "ServiceName": "Offpeak billing",
        "ServiceSubcategory": "Other (Other)",
        "Tags": _json({}),
    }


def amount(nanos: int) -> str:
    """Write nano-units as a decimal number with all nine places."""
    whole, rest = divmod(abs(nanos), NANOS_PER_UNIT)
    return f"{'-' if nanos < 0 else ''}{whole}.{rest:09d}"


def gpu_hours(gpu_millis: int) -> str:
    """Write GPU-milliseconds as GPU-hours, rounded half up at the last of 18 places."""
    scale = 10**QUANTITY_PLACES
    scaled = (2 * gpu_millis * scale + MILLIS_PER_HOUR) // (2 * MILLIS_PER_HOUR)
    return f"{scaled // scale}.{scaled % scale:0{QUANTITY_PLACES}d}"


def gib_months(byte_seconds: int) -> str:
    """Write byte-seconds as GiB-months, rounded half up at the last of 18 places."""
    scale = 10**QUANTITY_PLACES
    scaled = (2 * byte_seconds * scale + GIB_MONTH) // (2 * GIB_MONTH)
    return f"{scaled // scale}.{scaled % scale:0{QUANTITY_PLACES}d}"


def quantity_text(use: Use) -> str:
    """Write a use as a person reads it."""
    thousandths = (use.gpu_millis + MILLIS_PER_HOUR // 2_000) * 1_000 // MILLIS_PER_HOUR
    return f"{thousandths // 1_000}.{thousandths % 1_000:03d}"


def _moment(moment: datetime, *, up: bool = False) -> str:
    """Write a moment in UTC to the second: earlier, or later where `up`."""
    moment = moment.astimezone(UTC)
    if up and moment.microsecond:
        moment += timedelta(seconds=1)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(value: dict[str, str]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
