"""What accounts will be asked for by work that goes on, and how long they last. Reads rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from ledger.access import Actor
from ledger.domain.depletion import HORIZON, Draw, Seen, lasts_until, used_ppm
from ledger.domain.ids import AccountId, TenantId
from ledger.domain.money import Money
from ledger.queries import account
from ledger.queries.depletion import Watched, storage_of_a_day, watched
from marketplace.models.bids import BidRow
from marketplace.models.leases import LeaseRow
from marketplace.queries.leases import FINAL

HOURS_OF_DAY = 24


@dataclass(frozen=True, slots=True)
class Forecast:
    """How an account stands, and how long it lasts.

    there: what could be set aside when money last came in. left: now; None: without limit.
    used_ppm: what is gone of that. per_hour: what runs on it now costs, storage included.
    lasts_until: None: as far as is looked ahead (`HORIZON`), or for ever.
    """

    account_id: AccountId
    there: Money
    left: Money | None
    used_ppm: int
    per_hour: Money
    lasts_until: datetime | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """What one account will be asked for. per_hour: by what runs now, in nano-units."""

    draws: tuple[Draw, ...] = ()
    per_hour: int = 0


def forecasts(
    account_ids: Collection[AccountId | UUID], *, now: datetime
) -> dict[AccountId, Forecast]:
    """Return how long each of these accounts lasts; of those alone that pay for use."""
    rows, asked = watched(account_ids), _asked_of(account_ids, now)
    return {row.account_id: _forecast(row, asked[row.account_id], now) for row in rows}


def forecast_of(actor: Actor, account_id: AccountId, *, now: datetime) -> Forecast | None:
    """Return how long an account lasts; None: nothing is ever charged to it.

    Raises: AccountUnknown, also for one that the actor may not see.
    """
    account(actor, account_id)
    return forecasts([account_id], now=now).get(account_id)


def news_of(rows: Sequence[Watched], *, now: datetime) -> list[tuple[Watched, Seen]]:
    """Return each of these accounts that has a limit with how it stands now."""
    asked = _asked_of([row.account_id for row in rows], now)
    found = []
    for row in rows:
        forecast = _forecast(row, asked[row.account_id], now)
        if forecast.left is None:
            continue
        seen = Seen(
            account_id=row.account_id,
            tenant_id=TenantId(row.tenant_id),
            title=row.title,
            there=forecast.there,
            left=forecast.left,
            lasts_until=forecast.lasts_until,
        )
        found.append((row, seen))
    return found


def _forecast(row: Watched, asked: _Asked, now: datetime) -> Forecast:
    left, there = row.left_nanos, row.there_nanos
    return Forecast(
        account_id=row.account_id,
        there=Money(there, row.currency),
        left=None if left is None else Money(left, row.currency),
        used_ppm=0 if left is None else used_ppm(there_nanos=there, left_nanos=left),
        per_hour=Money(asked.per_hour, row.currency),
        lasts_until=None if left is None else lasts_until(left, asked.draws, now=now),
    )


def _asked_of(account_ids: Collection[AccountId | UUID], now: datetime) -> dict[AccountId, _Asked]:
    """Return what each account pays now and will be asked for.

    A lease is covered to its end by its hold. What goes on by itself, or is asked for again, is
    asked for from there on, at the price that it pays now.
    """
    draws: dict[AccountId, list[Draw]] = defaultdict(list)
    rates: dict[AccountId, int] = defaultdict(int)
    filled = BidRow.objects.filter(account_id__in=account_ids, state="filled")
    leases = LeaseRow.objects.filter(bid_id__in=filled.values("bid_id")).exclude(state__in=FINAL)
    running = {row.bid_id: row for row in leases}
    for bid in filled.filter(bid_id__in=list(running)):
        lease, account_id = running[bid.bid_id], AccountId(bid.account_id)
        rate = lease.price_at(lease.ends_at).nanos_per_gpu_hour * lease.gpus
        if lease.starts_at <= now < lease.ends_at:
            rates[account_id] += rate
        until = _wanted_until(bid)
        if until is not None and lease.stop_at is None:
            draws[account_id].append(Draw(rate, lease.ends_at, until))
    for key, nanos in storage_of_a_day(account_ids, now=now).items():
        rates[key] += nanos // HOURS_OF_DAY
        draws[key].append(Draw(nanos // HOURS_OF_DAY, now, now + HORIZON + timedelta(days=1)))
    known = {AccountId(key) for key in account_ids}
    return {key: _Asked(tuple(draws[key]), rates[key]) for key in known}


def _wanted_until(bid: BidRow) -> datetime | None:
    """Return until when work goes on by itself: extended in place, or asked for again."""
    moments = (bid.auto_extend_until, None if bid.chain_ended else bid.repeat_until)
    return max((moment for moment in moments if moment is not None), default=None)
