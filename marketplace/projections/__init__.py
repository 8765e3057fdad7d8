"""Every read model of the market."""

from __future__ import annotations

from ledger.following import Projection
from marketplace.projections import (
    bids,
    folders,
    leases,
    prices,
    quotas,
    rounds,
    secrets,
    spending,
    volumes,
)

PROJECTIONS: tuple[Projection, ...] = (
    *bids.PROJECTIONS,
    *leases.PROJECTIONS,
    *prices.PROJECTIONS,
    *rounds.PROJECTIONS,
    *quotas.PROJECTIONS,
    *folders.PROJECTIONS,
    *secrets.PROJECTIONS,
    *volumes.PROJECTIONS,
    *spending.PROJECTIONS,
)
