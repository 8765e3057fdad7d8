"""What GPUs would cost now, within a day and within a week: previews of bids nobody placed.

Each quote is one `preview`, so it is what the engine would decide at this moment, whoever asked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from ledger.domain.ids import AccountId, BidId, SubscriberId, TenantId
from ledger.domain.money import Money, Rate
from ledger.domain.span import Window
from ledger.eventstore.port import EventStore
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.facts.events import GpuRequest, Workload
from marketplace.queries.books import book_of, preview
from marketplace.queries.promised import Promised, promised_by

NOBODY = UUID("b1d5c0de-0000-4000-8000-0ffea4000002")
GPUS = (1, 8)
LENGTHS = (timedelta(hours=1), timedelta(hours=8), timedelta(days=3))
STARTS = (
    ("now", timedelta(minutes=5)),
    ("day", timedelta(days=1)),
    ("week", timedelta(days=7)),
)
"""By when the lease must have started."""
MODELS_MAX = 8
AT_ANY_PRICE = Rate(10_000 * 1_000_000_000)


@dataclass(frozen=True, slots=True)
class WindowQuote:
    """What so many GPUs on one host cost for so long, started by then. None: not to be had.

    starts_within: `now`, `day` or `week`. price: per GPU-hour, the cheapest there is. promised: by
    the owners of those GPUs.
    """

    gpu_model: str
    gpus: int
    length: timedelta
    starts_within: str
    price: Rate | None
    cost: Money | None
    window: Window | None
    promised: Promised | None = None


def models_listed(store: EventStore, *, market: str) -> list[str]:
    """Return the models that are listed for everybody, the MODELS_MAX most listed, most first."""
    counts: Counter[str] = Counter()
    with book_of(store, market) as book:
        for listed in book.offers.values():
            if not listed.paused and listed.terms.reserved_for is None:
                counts.update(gpu.model for gpu in listed.terms.gpus)
    in_order = sorted(counts, key=lambda model: (-counts[model], model))
    return in_order[:MODELS_MAX]


def window_quotes(
    store: EventStore, *, market: str, gpu_model: str, currency: str, now: datetime
) -> list[WindowQuote]:
    """Return a quote for each count, length and time of start; nothing is kept free for them."""
    return [
        _quote(store, market, gpu_model, currency, now, gpus, length, name, within)
        for gpus in GPUS
        for length in LENGTHS
        for name, within in STARTS
    ]


def _quote(
    store: EventStore,
    market: str,
    gpu_model: str,
    currency: str,
    now: datetime,
    gpus: int,
    length: timedelta,
    name: str,
    within: timedelta,
) -> WindowQuote:
    nobody = uuid5(NOBODY, f"{gpu_model}/{gpus}/{length}/{name}")
    terms = BidTerms(
        bid_id=BidId(nobody),
        tenant_id=TenantId(NOBODY),
        subscriber_id=SubscriberId(NOBODY),
        user_id=None,
        account_id=AccountId(NOBODY),
        market=market,
        request=GpuRequest(models=(gpu_model,)),
        gpus=gpus,
        placement="same-host",
        duration_seconds=length // timedelta(seconds=1),
        deadline=now + within + length,
        limit=Rate(AT_ANY_PRICE.nanos_per_gpu_hour, currency),
        service_class="on-demand",
        patience="immediate",
        workload=Workload(kind="other"),
    )
    quote = preview(store, terms=terms, now=now)
    promised = promised_by(
        (each.steps[0].notice_seconds, each.steps[0].fee_ppm, each.grace_seconds)
        for each in quote.promises
    )
    return WindowQuote(
        gpu_model, gpus, length, name, quote.price, quote.cost, quote.window, promised
    )
