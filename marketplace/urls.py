"""Where the API of the market is, below /api/v1/."""

from __future__ import annotations

from django.urls import URLPattern, path

from marketplace.api.advice import AdviseBid, ExplainOffer
from marketplace.api.bids import BidChain, Bids, ExplainBid, OneBid, PreviewBids
from marketplace.api.costs import Costs
from marketplace.api.earnings import EarningsByPlace
from marketplace.api.folders import FolderLinks, Folders, MissingBlobs, OneFolder
from marketplace.api.lab import Lab
from marketplace.api.lease_prices import AgreeLeasePrice, DeclineLeasePriceView, LeasePrices
from marketplace.api.leases import (
    LeaseCheckpoint,
    LeaseEvents,
    LeaseExtension,
    LeaseFirstRefusal,
    LeaseReclaim,
    LeaseReclaimQuote,
    LeaseResale,
    Leases,
    OneLease,
)
from marketplace.api.logs import LeaseLog, LeaseLogs
from marketplace.api.market import (
    MarketDepth,
    MarketIndex,
    MarketNow,
    MarketPrices,
    MarketQuotes,
    MarketTape,
    Workloads,
)
from marketplace.api.markets import BidRoute, Markets
from marketplace.api.money import AccountForecast, MoneyWaits
from marketplace.api.quota_limits import QuotaLimits
from marketplace.api.quota_requests import (
    ApproveQuotaRequest,
    DeclineQuotaRequest,
    OneQuotaRequest,
    QuotaRequests,
    TakeUpQuotaRequest,
)
from marketplace.api.quota_shares import QuotaShares
from marketplace.api.quota_trials import QuotaPolicies, QuotaTrials
from marketplace.api.quotas import (
    OneQuotaOverride,
    QuotaCohorts,
    QuotaCounting,
    QuotaHalfLife,
    QuotaLeastRun,
    QuotaListings,
    QuotaLog,
    QuotaOverrides,
    QuotaPeriod,
    Quotas,
    QuotaUnits,
    QuotaUses,
    QuotaWeights,
)
from marketplace.api.rounds import OneRound, ReplayRound, RoundOtherwise, Rounds
from marketplace.api.secrets import OneSecret, Secrets
from marketplace.api.spending import (
    ApproveSpendingGrant,
    DeclineSpendingGrant,
    OneSpendingBudget,
    SpendingBudgets,
    SpendingGrants,
)
from marketplace.api.spent import PoolingSaved, Spending
from marketplace.api.volumes import (
    MissingOfVolume,
    OneVolume,
    VolumeLinks,
    Volumes,
    VolumeVersions,
)

api_urls: list[URLPattern] = [
    path("accounts/<uuid:account_id>/forecast", AccountForecast.as_view()),
    path("money-waits", MoneyWaits.as_view()),
    path("earnings/places", EarningsByPlace.as_view()),
    path("bids", Bids.as_view()),
    path("bids/preview", PreviewBids.as_view()),
    path("bids/<uuid:bid_id>", OneBid.as_view()),
    path("bids/<uuid:bid_id>/chain", BidChain.as_view()),
    path("bids/<uuid:bid_id>/route", BidRoute.as_view()),
    path("bids/<uuid:bid_id>/explain", ExplainBid.as_view()),
    path("bids/<uuid:bid_id>/advice", AdviseBid.as_view()),
    path("offers/<uuid:offer_id>/explain", ExplainOffer.as_view()),
    path("budgets", SpendingBudgets.as_view()),
    path("budgets/<uuid:budget_id>", OneSpendingBudget.as_view()),
    path("budgets/<uuid:budget_id>/grants", SpendingGrants.as_view()),
    path("budgets/<uuid:budget_id>/grants/<uuid:grant_id>/approve", ApproveSpendingGrant.as_view()),
    path("budgets/<uuid:budget_id>/grants/<uuid:grant_id>/decline", DeclineSpendingGrant.as_view()),
    path("costs", Costs.as_view()),
    path("folders", Folders.as_view()),
    path("folders/missing", MissingBlobs.as_view()),
    path("folders/<uuid:folder_id>", OneFolder.as_view()),
    path("folders/<uuid:folder_id>/links", FolderLinks.as_view()),
    path("lab", Lab.as_view()),
    path("leases", Leases.as_view()),
    path("leases/<uuid:lease_id>", OneLease.as_view()),
    path("leases/<uuid:lease_id>/checkpoint", LeaseCheckpoint.as_view()),
    path("leases/<uuid:lease_id>/events", LeaseEvents.as_view()),
    path("leases/<uuid:lease_id>/logs", LeaseLogs.as_view()),
    path("leases/<uuid:lease_id>/logs/<str:stream>", LeaseLog.as_view()),
    path("leases/<uuid:lease_id>/prices", LeasePrices.as_view()),
    path("leases/<uuid:lease_id>/prices/<uuid:proposal_id>/agree", AgreeLeasePrice.as_view()),
    path(
        "leases/<uuid:lease_id>/prices/<uuid:proposal_id>/decline", DeclineLeasePriceView.as_view()
    ),
    path("leases/<uuid:lease_id>/reclaim", LeaseReclaim.as_view()),
    path("leases/<uuid:lease_id>/reclaim-quote", LeaseReclaimQuote.as_view()),
    path("leases/<uuid:lease_id>/resale", LeaseResale.as_view()),
    path("leases/<uuid:lease_id>/resale/take", LeaseFirstRefusal.as_view()),
    path("leases/<uuid:lease_id>/extension", LeaseExtension.as_view()),
    path("markets", Markets.as_view()),
    path("market", MarketNow.as_view()),
    path("market/depth", MarketDepth.as_view()),
    path("market/index", MarketIndex.as_view()),
    path("market/prices", MarketPrices.as_view()),
    path("market/quotes", MarketQuotes.as_view()),
    path("market/tape", MarketTape.as_view()),
    path("quotas", Quotas.as_view()),
    path("quotas/cohorts", QuotaCohorts.as_view()),
    path("quotas/counting", QuotaCounting.as_view()),
    path("quotas/half-life", QuotaHalfLife.as_view()),
    path("quotas/least-run", QuotaLeastRun.as_view()),
    path("quotas/limits", QuotaLimits.as_view()),
    path("quotas/listings", QuotaListings.as_view()),
    path("quotas/log", QuotaLog.as_view()),
    path("quotas/overrides", QuotaOverrides.as_view()),
    path("quotas/overrides/<uuid:override_id>", OneQuotaOverride.as_view()),
    path("quotas/period", QuotaPeriod.as_view()),
    path("quotas/policies", QuotaPolicies.as_view()),
    path("quotas/requests", QuotaRequests.as_view()),
    path("quotas/requests/<uuid:request_id>", OneQuotaRequest.as_view()),
    path("quotas/requests/<uuid:request_id>/approve", ApproveQuotaRequest.as_view()),
    path("quotas/requests/<uuid:request_id>/decline", DeclineQuotaRequest.as_view()),
    path("quotas/requests/<uuid:request_id>/take-up", TakeUpQuotaRequest.as_view()),
    path("quotas/shares", QuotaShares.as_view()),
    path("quotas/trials", QuotaTrials.as_view()),
    path("quotas/units", QuotaUnits.as_view()),
    path("quotas/uses", QuotaUses.as_view()),
    path("quotas/weights", QuotaWeights.as_view()),
    path("rounds", Rounds.as_view()),
    path("rounds/<uuid:round_id>", OneRound.as_view()),
    path("rounds/<uuid:round_id>/otherwise", RoundOtherwise.as_view()),
    path("rounds/<uuid:round_id>/replay", ReplayRound.as_view()),
    path("secrets", Secrets.as_view()),
    path("secrets/<str:name>", OneSecret.as_view()),
    path("spending", Spending.as_view()),
    path("spending/saved", PoolingSaved.as_view()),
    path("volumes", Volumes.as_view()),
    path("volumes/<str:volume>", OneVolume.as_view()),
    path("volumes/<str:volume>/links", VolumeLinks.as_view()),
    path("volumes/<str:volume>/missing", MissingOfVolume.as_view()),
    path("volumes/<str:volume>/versions", VolumeVersions.as_view()),
    path("workloads", Workloads.as_view()),
]
