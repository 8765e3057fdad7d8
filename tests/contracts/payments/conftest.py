"""The payment services that the contract is run on: the stand-in, and Stripe's own test mode."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

from ledger.payments.stripe import StripePayments
from tests.stripe_double.double import DECLINED, KEY, SECRET, StripeDouble

TEST_KEY = "STRIPE_TEST_KEY"
WITHOUT = f"set {TEST_KEY} to a key of Stripe's test mode, sk_test_…, to ask Stripe itself"


@dataclass
class Service:
    """A payment service, and how a payer gets a card there. double: None where it is Stripe."""

    payments: StripePayments
    double: StripeDouble | None

    def payer(self) -> str:
        """Make a payer whose invoices can be mailed."""
        return self.payments.payer(
            "Offpeak test", marks={"offpeak_account": "x"}, key=key(), email="ap@studio.example"
        )

    def card(self, payer: str, *, declined: bool = False) -> str:
        """Let a payer have a card kept; return its id."""
        if self.double is not None:
            return str(self.double.card(payer, DECLINED if declined else "4242")["id"])
        name = "pm_card_chargeCustomerFail" if declined else "pm_card_visa"
        client = self.payments.client
        return str(client.v1.payment_methods.attach(name, {"customer": payer}).id)


def key() -> str:
    """Return a key that no call had before."""
    return f"offpeak:test:{uuid4()}"


@pytest.fixture(params=["double", "stripe"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    """Each service in turn; Stripe's test mode only where there is a key."""
    if request.param == "stripe":
        known = os.environ.get(TEST_KEY, "")
        if not known:
            pytest.skip(WITHOUT)
        assert known.startswith(("sk_test_", "rk_test_")), f"{TEST_KEY} is not of the test mode"
        yield Service(StripePayments(known, secret=SECRET), None)
        return
    double = StripeDouble().start()
    yield Service(StripePayments(KEY, secret=SECRET, url=double.url), double)
    double.stop()
    assert double.faults == []
