"""What is to be charged for a volume: the bytes of its newest version, for as long as it has them.

Versions before the newest cost nothing. Equal parts count in every file that has them: what the
platform saves by keeping them once is its own.

A charge is the price of all that was kept so far less what was charged before. So what is over
need not be known second by second (`kept_time`): that a charge ended somewhere in it is in the sum.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ledger.domain.ids import AccountId
from ledger.domain.span import Window
from ledger.domain.storage import Stored
from ledger.domain.storage_charges import Kept
from marketplace.domain.volumes.kept_time import Span, hour_of
from marketplace.domain.volumes.volume import Volume

SETTLES = timedelta(minutes=5)
"""So long after an hour it is charged: what was recorded on another machine's clock is there."""

BYTE_SECONDS_MAX = 2**62
"""So much an entry charges at most, as its figures fit 64 bits: 48 TiB for a day. The next one has
the rest."""


def charged_until(now: datetime) -> datetime:
    """Return the end of the last hour that can be charged."""
    return hour_of(now - SETTLES)


def payers_of(volume: Volume) -> list[AccountId]:
    """Return the accounts that pay, or paid, for a volume."""
    return volume.kept.accounts


def pieces_of(
    volume: Volume, *, account_id: AccountId, before: Stored | None, until: datetime
) -> list[Kept]:
    """Return what an account is to be charged for. before: what it was; None: nothing yet.

    A piece has one price and lies in one day (UTC), and so in one month.
    """
    since = None if before is None else before.until
    owed = 0 if before is None else -before.nano_byte_seconds
    found: list[Span] = []
    for span in volume.kept.until(until):
        if span.terms.account_id != account_id:
            continue
        owed += span.nano_byte_seconds
        if owed <= 0 or (since is not None and span.window.ends_at <= since):
            continue
        begins = span.window.starts_at if since is None else max(span.window.starts_at, since)
        most = BYTE_SECONDS_MAX * span.terms.nanos_per_gib_month
        piece = Span(Window(begins, span.window.ends_at), span.terms, 0).coming_to(min(owed, most))
        if found and found[-1].is_of_day(piece):
            found[-1] = found[-1].joined(piece)
        else:
            found.append(piece)
        owed -= piece.nano_byte_seconds
    return [
        Kept(
            volume_id=volume.volume_id,
            title=f"volume {volume.created.volume}",
            window=piece.window,
            byte_seconds=piece.byte_seconds,
            nanos_per_gib_month=piece.terms.nanos_per_gib_month,
            beside=piece.beside,
            currency=piece.terms.currency,
            cost_centre=piece.terms.cost_centre,
        )
        for piece in found
    ]
