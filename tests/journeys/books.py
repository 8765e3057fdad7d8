"""What the ledger says of a lease, over HTTP, and that it adds up."""

from __future__ import annotations

from typing import Any

from ledger.domain.money import Money, Rate, nanos_of
from marketplace.sdk.client import Client
from tests.journeys.installation import Installation, until


def signed_nanos(text: str) -> int:
    """Read an amount that may be negative."""
    return -nanos_of(text[1:]) if text.startswith("-") else nanos_of(text)


def final_use(market: Installation, person: str, lease_id: str) -> dict[str, Any]:
    """Wait until the use of a lease is rated to its end and charged; return it."""
    with market.client(person) as api:

        def settled() -> dict[str, Any] | None:
            is_final = api.get(f"leases/{lease_id}/usage")["is_final"]
            windows = list(api.all(f"leases/{lease_id}/usage/windows"))
            if not is_final or not all(window["is_captured"] for window in windows):
                return None
            # Asked again: it may have been charged in between.
            use: dict[str, Any] = api.get(f"leases/{lease_id}/usage")
            return use

        told = until(settled, why=f"lease {lease_id} is not settled")
        assert told is not None
        return told


def charge_of(lease: dict[str, Any], granted_ms: int) -> Money:
    """Return what a lease owes for its use, by the rule alone."""
    return Rate(nanos_of(lease["price"])).charge(granted_ms)


def account(api: Client, *, kind: str, title: str = "") -> dict[str, Any]:
    """Return the only account of a kind that one sees whose title has these words."""
    found = [one for one in api.all("accounts") if one["kind"] == kind and title in one["title"]]
    assert len(found) == 1, [(one["kind"], one["title"]) for one in api.all("accounts")]
    return found[0]


def entries(api: Client, account_id: str, lease_id: str, *, period: str) -> dict[str, int]:
    """Return by kind what a lease moved on an account, in nano-units."""
    sums: dict[str, int] = {}
    for line in api.all(f"accounts/{account_id}/statement", period=period):
        if line["lease_id"] == lease_id:
            sums[line["kind"]] = sums.get(line["kind"], 0) + signed_nanos(line["amount"])
    return sums
