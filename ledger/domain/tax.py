"""Which tax is due on an invoice: a rule that is handed in. None by default; EU VAT as one.

The rates and rules here are an example that is tested, not advice: whoever issues invoices asks
who knows their tax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from ledger.domain.invoice_events import LineCategory, PartyDetails, TaxScheme
from ledger.domain.refusal import Invalid, Refusal

PPM = 1_000_000


class TaxCountryMissing(Refusal):
    """The tax of this invoice depends on countries, and one of the parties has none on record.

    Set the billing details of the party named in `party`.
    """


class VatIdUnreadable(Invalid):
    """A VAT id is the two letters of its country and up to twelve letters and digits.

    In the EU each country has a form of its own, such as DE123456789 and FR12345678901.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """How a line is taxed. code: lines of one code are taxed together."""

    code: str
    title: str
    rate_ppm: int
    note: str = ""


class TaxRule(Protocol):
    """Says how a line of an invoice from one party to another is taxed; None: no tax applies."""

    def treat(
        self, category: LineCategory, *, issuer: PartyDetails, payer: PartyDetails
    ) -> Treatment | None:
        """Return the treatment of lines of a category.

        Raises: TaxCountryMissing.
        """
        ...


class NoTax:
    """No tax at all: the default."""

    def treat(
        self, category: LineCategory, *, issuer: PartyDetails, payer: PartyDetails
    ) -> Treatment | None:
        """Return None."""
        return None


EU_RATES_PERCENT_TIMES_TEN = {
    "AT": 200, "BE": 210, "BG": 200, "CY": 190, "CZ": 210, "DE": 190, "DK": 250, "EE": 240,
    "ES": 210, "FI": 255, "FR": 200, "GR": 240, "HR": 250, "HU": 270, "IE": 230, "IT": 220,
    "LT": 210, "LU": 170, "LV": 210, "MT": 180, "NL": 210, "PL": 230, "PT": 230, "RO": 210,
    "SE": 250, "SI": 220, "SK": 230,
}  # fmt: skip
"""Standard rates as of 2026. Source: the member states' laws; check them before use."""

VAT_PREFIX = {"GR": "EL"}
_VAT_ID = re.compile(r"[A-Z]{2}[0-9A-Z+*]{2,12}")
_EU_VAT_IDS = {
    "AT": r"U\d{8}", "BE": r"[01]\d{9}", "BG": r"\d{9,10}", "CY": r"\d{8}[A-Z]",
    "CZ": r"\d{8,10}", "DE": r"\d{9}", "DK": r"\d{8}", "EE": r"\d{9}", "EL": r"\d{9}",
    "ES": r"[0-9A-Z]\d{7}[0-9A-Z]", "FI": r"\d{8}", "FR": r"[0-9A-Z]{2}\d{9}", "HR": r"\d{11}",
    "HU": r"\d{8}", "IE": r"\d[0-9A-Z+*]\d{5}[A-Z]{1,2}", "IT": r"\d{11}",
    "LT": r"\d{9}|\d{12}", "LU": r"\d{8}", "LV": r"\d{11}", "MT": r"\d{8}",
    "NL": r"[0-9A-Z+*]{12}", "PL": r"\d{10}", "PT": r"\d{9}", "RO": r"\d{2,10}",
    "SE": r"\d{12}", "SI": r"\d{8}", "SK": r"\d{10}",
}  # fmt: skip
"""What follows the letters of each country. Source: VIES of the European Commission."""
REVERSE_CHARGE = (
    "Reverse charge: VAT is to be accounted for by the recipient (Article 196 of Council Directive"
    " 2006/112/EC)."
)
OUTSIDE = "Not subject to EU VAT: the place of supply is outside the EU (Article 44)."


class EuVat:
    """VAT on services by Council Directive 2006/112/EC.

    Within a country its own rate. To a business elsewhere in the EU (one with a VAT id of its
    country) no VAT, which the customer accounts for. To others in the EU the rate of their country.
    To outside the EU none.
    """

    def treat(
        self, category: LineCategory, *, issuer: PartyDetails, payer: PartyDetails
    ) -> Treatment | None:
        """Return the treatment, the same for every category: all of it is one kind of service."""
        for party, details in (("issuer", issuer), ("payer", payer)):
            if not details.country:
                raise TaxCountryMissing(party=party, name=details.name)
        home, there = issuer.country, payer.country
        if home not in EU_RATES_PERCENT_TIMES_TEN:
            return None
        if there not in EU_RATES_PERCENT_TIMES_TEN:
            return Treatment(code="outside", title="VAT 0%", rate_ppm=0, note=OUTSIDE)
        if there != home and payer.vat_id.startswith(VAT_PREFIX.get(there, there)):
            return Treatment(code="reverse", title="VAT 0%", rate_ppm=0, note=REVERSE_CHARGE)
        tenths = EU_RATES_PERCENT_TIMES_TEN[there]
        shown = f"{tenths // 10}" + (f".{tenths % 10}" if tenths % 10 else "")
        return Treatment(code=f"vat-{there}", title=f"VAT {shown}%", rate_ppm=tenths * 1_000)


def rule_of(scheme: TaxScheme) -> TaxRule:
    """Return the rule of a scheme that an issuer chose."""
    return EuVat() if scheme == "eu-vat" else NoTax()


def vat_id_read(text: str) -> str:
    """Return a VAT id as it is printed, without blanks; empty stays empty.

    Raises: VatIdUnreadable.
    """
    plain = re.sub(r"[\s.-]", "", text).upper()
    form = _EU_VAT_IDS.get(plain[:2], ".*")
    if plain and not (_VAT_ID.fullmatch(plain) and re.fullmatch(form, plain[2:])):
        raise VatIdUnreadable(given=text[:40])
    return plain


def tax_on(base_nanos: int, rate_ppm: int, unit: int) -> int:
    """Return the tax on a base, in whole smallest units; a half goes up."""
    return (2 * base_nanos * rate_ppm + unit * PPM) // (2 * unit * PPM) * unit
