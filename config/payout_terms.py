"""On which terms the platform pays its owners, and from which account, as the environment says."""

from __future__ import annotations

from typing import cast

from config.env import Env
from ledger.domain.bank_files import Debtor
from ledger.domain.money import nanos_of
from ledger.domain.payout_events import Schedule
from ledger.domain.settling import PayoutTerms


def payout_terms(env: Env) -> PayoutTerms:
    """Return how owners are paid, unless they chose otherwise."""
    return PayoutTerms(
        schedule=cast(Schedule, env.payout_schedule),
        minimum_nanos=nanos_of(env.payout_minimum),
        held_days=env.payout_held_days,
        held_share_ppm=env.payout_held_percent * 10_000,
        alone_nanos_max=nanos_of(env.payout_alone_max),
        details_wait_seconds=env.payout_details_wait_seconds,
    )


def payout_debtor(env: Env) -> Debtor:
    """Return from which bank account owners are paid."""
    return Debtor(name=env.payout_name, iban=env.payout_iban, bic=env.payout_bic)
