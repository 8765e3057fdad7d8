"""How the engine's decisions become rounds, a tape and prices."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows
from marketplace.domain.facts.events import Certificate, LeaseGranted, LeaseScheduled, RoundCleared
from marketplace.models.rounds import PriceRow, RoundRow, TradeRow


def project_rounds(recorded: Recorded, rows: Rows) -> None:
    """Keep RoundRow, TradeRow and PriceRow equal to the market streams."""
    match recorded.event:
        case RoundCleared() as cleared:
            reasons = Counter(unmatched.reason for unmatched in cleared.unmatched)
            rows.make(
                RoundRow,
                round_id=cleared.round_id,
                position=recorded.position,
                market=cleared.market,
                lane=cleared.lane,
                rule=cleared.rule,
                through=cleared.through,
                bids=cleared.bids,
                offers=cleared.offers,
                grants=cleared.grants,
                gpus=cleared.gpus,
                price_low_nanos=cleared.price_low,
                price_high_nanos=cleared.price_high,
                unmatched=dict(sorted(reasons.items())),
                certificate=_written(cleared.certificate),
                at=cleared.at,
            )
        case LeaseGranted(own=True) | LeaseScheduled(own=True):
            pass  # nobody traded: neither tape nor prices hear of it
        case LeaseGranted(binds=False) | LeaseScheduled(round_id=None):
            pass  # it counts once its lease is scheduled; or was counted when it was granted
        case LeaseGranted() | LeaseScheduled() as granted:
            assert granted.round_id is not None
            gpus = sum(len(share.gpu_uuids) for share in granted.shares)
            burst = any(share.source == "burst" for share in granted.shares)
            rows.make(
                TradeRow,
                position=recorded.position,
                round_id=granted.round_id,
                market=granted.market,
                lane=rows.get(RoundRow, granted.round_id).lane,
                gpu_model=granted.gpu_model,
                gpus=gpus,
                price_nanos_per_gpu_hour=granted.price.nanos_per_gpu_hour,
                currency=granted.price.currency,
                starts_at=granted.window.starts_at,
                ends_at=granted.window.ends_at,
                source="burst" if burst else "local",
                at=granted.at,
            )
            _add_to_price(granted, gpus, rows)


def _written(certificate: Certificate | None) -> dict[str, Any] | None:
    if certificate is None:
        return None
    written = asdict(certificate) | {"iterations": dict(certificate.iterations)}
    aside = written.pop("aside")
    return written | {"aside": len(aside)} if aside else written


def _add_to_price(granted: LeaseGranted | LeaseScheduled, gpus: int, rows: Rows) -> None:
    hour = granted.at.replace(minute=0, second=0, microsecond=0)
    price, currency = granted.price.nanos_per_gpu_hour, granted.price.currency
    key = f"{granted.market}/{granted.gpu_model}/{currency}/{hour:%Y-%m-%dT%H}"
    row = rows.find(PriceRow, key)
    if row is None:
        row = PriceRow(
            key=key,
            market=granted.market,
            gpu_model=granted.gpu_model,
            currency=currency,
            hour=hour,
            trades=0,
            gpus=0,
            gpu_millis=0,
            value_nanos=0,
            low_nanos=price,
            high_nanos=price,
        )
        rows.add(row)
    gpu_millis = granted.window.millis * gpus
    rows.change(
        PriceRow,
        key,
        trades=row.trades + 1,
        gpus=row.gpus + gpus,
        gpu_millis=row.gpu_millis + gpu_millis,
        value_nanos=row.value_nanos + granted.price.charge(gpu_millis).nanos,
        low_nanos=min(row.low_nanos, price),
        high_nanos=max(row.high_nanos, price),
        last_nanos=price,
    )


PROJECTIONS = (
    Projection(
        name="marketplace.rounds",
        project=project_rounds,
        tables=(RoundRow, TradeRow, PriceRow),
        is_bulk=True,
        on=names_of(RoundCleared, LeaseGranted, LeaseScheduled),
    ),
)
