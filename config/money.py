"""Who takes payments, and the loops between them and the wallets."""

from __future__ import annotations

from config.address import address_on_this_machine
from config.env import Env
from config.processes.loops import Loop
from ledger.connect import transfers
from ledger.funding import automatic, inbox, outbox, reconciling
from ledger.payments.port import Payments

GATHER_SECONDS = 0.25


def build_payments(env: Env) -> Payments | None:
    """Return who takes payments: Stripe where there is a key, else nobody. Loads it only then."""
    if not env.stripe_key:
        return None
    from ledger.payments.stripe import StripePayments

    return StripePayments(
        env.stripe_key,
        secret=env.stripe_webhook_secret,
        url=env.stripe_url,
        connect_secret=env.stripe_connect_webhook_secret,
    )


def paying_loops(env: Env) -> tuple[Loop, ...]:
    """Return what carries out what wallets ask for, takes word of it, and tops them up."""
    site = env.base_url or address_on_this_machine(env.host, env.port)
    return (
        Loop(
            "payment-calls",
            2.0,
            lambda store, now: outbox.run_once(store, site=site, now=now),
            on_events=True,
            gather_seconds=GATHER_SECONDS,
        ),
        Loop("payment-notices", 1.0, lambda store, now: inbox.run_once(store, now=now)),
        Loop(
            "payment-reconciliation",
            3_600.0,
            lambda store, now: reconciling.run_once(store, now=now),
        ),
        Loop(
            "owner-transfers",
            5.0,
            lambda store, now: transfers.run_once(store, now=now),
            on_events=True,
            gather_seconds=GATHER_SECONDS,
        ),
        Loop("automatic-top-ups", 15.0, lambda store, now: automatic.run_once(store, now=now)),
    )
