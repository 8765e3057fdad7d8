"""How the facts of bids become rows."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from ledger.domain.ids import BidId
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows, made
from marketplace.domain.bids.query_language import write_query
from marketplace.domain.facts.bid_events import BidRouted
from marketplace.domain.facts.events import (
    BidAmended,
    BidAwaitsMoney,
    BidCancelled,
    BidChainEnded,
    BidExpired,
    BidFilled,
    BidHandedOn,
    BidMoveAsked,
    BidPlaced,
    RoundCleared,
    Workload,
)
from marketplace.domain.leases.renewals import STAYED
from marketplace.models.bids import BidRow, RouteRow
from marketplace.models.money_waits import MoneyWaitRow


def project_bids(recorded: Recorded, rows: Rows) -> None:
    """Keep BidRow equal to the bid streams, with the reason the engine last gave."""
    match recorded.event:
        case BidPlaced() as placed:
            rows.add(_row(placed))
            _wait_no_longer(placed.continues.bid_id if placed.continues else None, rows)
        case BidAwaitsMoney() | BidMoveAsked() as told:
            rows.change(BidRow, told.bid_id, version=recorded.version)
            if isinstance(told, BidAwaitsMoney):
                _wait(told, rows)
        case BidAmended() as amended:
            rows.change(
                BidRow,
                amended.bid_id,
                limit_nanos_per_gpu_hour=amended.limit.nanos_per_gpu_hour,
                deadline=amended.deadline,
                queued_at=amended.at,
                version=recorded.version,
            )
            if amended.gpus is not None and amended.request is not None:
                rows.change(
                    BidRow,
                    amended.bid_id,
                    gpus=amended.gpus,
                    gpus_min=amended.gpus_min,
                    query=write_query(amended.request),
                )
        case BidCancelled() as cancelled:
            _end(cancelled.bid_id, "cancelled", cancelled.at, recorded, rows)
        case BidExpired() as expired:
            _end(expired.bid_id, "expired", expired.at, recorded, rows)
            rows.change(BidRow, expired.bid_id, ended_because=expired.reason)
        case BidFilled() as filled:
            _end(filled.bid_id, "filled", filled.at, recorded, rows)
            _fill(filled, rows)
        case BidChainEnded() as ended:
            because = ended.because[:64]
            row = rows.change(BidRow, ended.bid_id, chain_ended=because, version=recorded.version)
            row.chain_id = None if because == STAYED else row.chain_id
            _wait_no_longer(ended.bid_id, rows)
        case BidHandedOn() as handed:
            _hand_on(handed, rows)
        case RoundCleared() as cleared:
            for unmatched in cleared.unmatched:
                # The engine may speak of a bid that was withdrawn since it looked.
                if rows.get(BidRow, unmatched.bid_id).state == "open":
                    rows.change(BidRow, unmatched.bid_id, reason=unmatched.reason)


def _wait(awaits: BidAwaitsMoney, rows: Rows) -> None:
    row = rows.get(BidRow, awaits.bid_id)
    rows.make(
        MoneyWaitRow,
        bid_id=awaits.bid_id,
        chain_id=row.chain_id or awaits.bid_id,
        lease_id=row.lease_id,
        tenant_id=row.tenant_id,
        subscriber_id=row.subscriber_id,
        account_id=awaits.account_id,
        needs_nanos=awaits.needs.nanos,
        currency=awaits.needs.currency,
        since=awaits.at,
        until=awaits.until,
        budget=awaits.budget,
        opens_at=awaits.opens_at,
    )


def _wait_no_longer(bid_id: BidId | None, rows: Rows) -> None:
    """Note that what was to follow a bid is placed, or that nothing is."""
    if bid_id is not None and rows.find(MoneyWaitRow, bid_id) is not None:
        rows.remove(MoneyWaitRow, bid_id)


def _fill(filled: BidFilled, rows: Rows) -> None:
    """Note the lease; a bid that work moves to is a link of its chain from here on."""
    row = rows.change(BidRow, filled.bid_id, lease_id=filled.lease_id, reason="")
    if row.chain_id is None and row.continues_id is not None:
        row.chain_id = rows.get(BidRow, row.continues_id).chain_id


def project_routes(recorded: Recorded, rows: Rows) -> None:
    """Keep a RouteRow of each bid that several markets could serve, as long as it waits."""
    match recorded.event:
        case BidRouted() as routed:
            markets = [each.market for each in routed.considered]
            rows.add(
                RouteRow(
                    bid_id=routed.bid_id, market=routed.market, markets=markets, since=routed.at
                )
            )
        case BidMoveAsked() as asked:
            if rows.find(RouteRow, asked.bid_id) is not None:
                rows.change(RouteRow, asked.bid_id, since=asked.at)
        case BidHandedOn() as handed:
            row = rows.find(RouteRow, handed.bid_id)
            if row is not None:
                rows.change(
                    RouteRow,
                    handed.bid_id,
                    market=handed.to,
                    moves=row.moves + 1,
                    since=handed.at,
                )
        case BidCancelled() | BidExpired() | BidFilled() as over:
            if rows.find(RouteRow, over.bid_id) is not None:
                rows.remove(RouteRow, over.bid_id)


def _hand_on(handed: BidHandedOn, rows: Rows) -> None:
    row = rows.get(BidRow, handed.bid_id)
    move = {"market": handed.market, "to": handed.to, "at": handed.at.isoformat()}
    rows.change(
        BidRow,
        handed.bid_id,
        market=handed.to,
        queued_at=handed.at,
        moves=[*row.moves, move],
        reason="",
    )


def _row(placed: BidPlaced) -> BidRow:
    link = placed.continues
    is_chain = placed.resume or placed.repeat_until is not None
    first_id = placed.bid_id if link is None else link.first_id
    return made(
        BidRow,
        bid_id=placed.bid_id,
        tenant_id=placed.tenant_id,
        subscriber_id=placed.subscriber_id,
        user_id=placed.user_id,
        account_id=placed.account_id,
        market=placed.market,
        state="open",
        reason="",
        query=write_query(placed.request),
        gpus=placed.gpus,
        placement=placed.placement,
        duration_seconds=placed.duration_seconds,
        earliest_start=placed.earliest_start,
        deadline=placed.deadline,
        limit_nanos_per_gpu_hour=placed.limit.nanos_per_gpu_hour,
        currency=placed.limit.currency,
        service_class=placed.service_class,
        patience=placed.patience,
        **_work(placed.workload),
        seeks=placed.seeks,
        cost_centre=placed.cost_centre,
        burst_allowed=placed.burst_allowed,
        good_till=placed.good_till,
        good_until=placed.good_until,
        gpus_min=placed.gpus_min,
        duration_min_seconds=placed.duration_min_seconds,
        budget_nanos=None if placed.budget is None else placed.budget.nanos,
        auto_extend_until=placed.auto_extend_until,
        repeat_until=placed.repeat_until,
        resume=placed.resume,
        pausable=placed.pausable,
        pauses=link.pauses if link is not None else 0,
        done_seconds=link.done_seconds if link is not None else 0,
        # Work that was to move and stays has no link here: it is one only once it is a lease.
        chain_id=first_id if is_chain and not (link and link.moves) else None,
        chain_number=1 if link is None else link.number,
        continues_id=None if link is None else link.bid_id,
        resumes_lease_id=None if link is None or not link.resumes else link.lease_id,
        placed_at=placed.at,
        queued_at=placed.at,
        version=1,
    )


def _work(workload: Workload) -> dict[str, Any]:
    """Return the fields that say what runs."""
    return {
        "workload_kind": workload.kind,
        "command": list(workload.command),
        "environment": dict(workload.environment),
        "checkpoint_seconds": workload.checkpoint_seconds,
        "image": workload.image,
        "inputs": workload.inputs,
        "outputs": list(workload.outputs),
        "fetch": workload.fetch,
        "fetch_secret": workload.fetch_secret,
        "secrets": list(workload.secrets),
        "secret_variables": list(workload.secret_variables),
        "volumes": [asdict(each) for each in workload.volumes],
        "end_when_idle_seconds": workload.end_when_idle_seconds,
        "project": workload.project,
    }


def _end(bid_id: BidId, state: str, at: datetime, recorded: Recorded, rows: Rows) -> None:
    rows.change(BidRow, bid_id, state=state, ended_at=at, version=recorded.version)


PROJECTIONS = (
    Projection(
        name="marketplace.bids",
        project=project_bids,
        tables=(BidRow, MoneyWaitRow),
        on=names_of(
            BidPlaced,
            BidAmended,
            BidCancelled,
            BidExpired,
            BidFilled,
            BidChainEnded,
            BidMoveAsked,
            BidAwaitsMoney,
            BidHandedOn,
            RoundCleared,
        ),
    ),
    Projection(
        name="marketplace.routes",
        project=project_routes,
        tables=(RouteRow,),
        on=names_of(BidRouted, BidMoveAsked, BidHandedOn, BidCancelled, BidExpired, BidFilled),
    ),
)
