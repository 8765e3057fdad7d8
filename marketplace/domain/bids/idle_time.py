"""For how long a lease may be idle before it is given back, where its consumer set a rule."""

from __future__ import annotations

from ledger.domain.refusal import Invalid

IDLE_SECONDS_MIN, IDLE_SECONDS_MAX = 300, 12 * 3600


class IdleTimeOutOfRange(Invalid):
    """A lease is given back after 5 minutes to 12 hours of idle time, or by no rule at all."""


def need_idle_time(seconds: int | None) -> None:
    """Refuse a time that is too short to tell, or too long to be of use; None: there is no rule.

    Raises: IdleTimeOutOfRange.
    """
    if seconds is not None and not IDLE_SECONDS_MIN <= seconds <= IDLE_SECONDS_MAX:
        raise IdleTimeOutOfRange(seconds_min=IDLE_SECONDS_MIN, seconds_max=IDLE_SECONDS_MAX)
