"""The files that leased work leaves: until when a host may bring them, and what it says of them."""

from __future__ import annotations

from datetime import datetime, timedelta

from ledger.domain.ids import HostId
from ledger.domain.refusal import Refusal
from marketplace.domain.facts.events import OutputsFailed
from marketplace.domain.leases.lease import Lease

OUTPUTS_WITHIN = timedelta(hours=24)
"""So long after the end of a lease its hosts may bring what its work left. Longer than an agent
tries (`metering/agent/files/carrier.py`), and than most outages last."""
FAILED_MAX = 20
"""So much a host may say of one lease."""
REASON_LENGTH_MAX = 500


class InputsNotAsked(Refusal):
    """The bid of that lease names no inputs."""


class OutputsNotAsked(Refusal):
    """The bid of that lease names no outputs."""


class OutputsTooLate(Refusal):
    """That lease is over for more than a day: what its work left is not taken any more."""


def need_outputs_wanted(
    outputs: tuple[str, ...], *, closed_at: datetime | None, now: datetime
) -> None:
    """Refuse files that nobody asked for, or that come too late.

    Raises: OutputsNotAsked, OutputsTooLate.
    """
    if not outputs:
        raise OutputsNotAsked()
    if closed_at is not None and now > closed_at + OUTPUTS_WITHIN:
        raise OutputsTooLate(closed_at=closed_at)


def outputs_failed(
    lease: Lease, *, host_id: HostId, reason: str, final: bool, volume: str = "", now: datetime
) -> list[OutputsFailed]:
    """Take note of what a host could not bring; the same again, or too much, changes nothing.

    volume: of which volume it is the next version; empty: it is of the outputs.
    """
    place = (host_id, volume)
    said = [each for each in lease.outputs_failed if (each.host_id, each.volume) == place]
    reason = reason[:REASON_LENGTH_MAX]
    known = bool(said) and (said[-1].reason, said[-1].final) == (reason, final)
    if host_id not in lease.hosts or known or len(said) >= FAILED_MAX:
        return []
    return [
        OutputsFailed(
            lease_id=lease.terms.lease_id,
            host_id=host_id,
            reason=reason,
            final=final,
            volume=volume,
            at=now,
        )
    ]
