"""Months that a request asks for: one, or some one after the other."""

from __future__ import annotations

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from ledger.domain.periods import Period, read_period
from ledger.domain.refusal import Invalid

MONTH = r"^2[01][0-9]{2}-(0[1-9]|1[0-2])$"
LAST = OpenApiParameter(
    "period", pattern=MONTH, description="The last month in UTC, such as 2026-11; this one, else."
)
FIRST = OpenApiParameter("since", pattern=MONTH, description="The first month; the last one, else.")


class MonthsBackwards(Invalid):
    """The first month comes after the last one."""


def months_asked(request: Request) -> tuple[Period, Period]:
    """Return the first and the last month that are asked for: `period` alone is one.

    Raises: PeriodUnreadable, MonthsBackwards.
    """
    query = request.query_params
    last = read_period(query["period"]) if "period" in query else Period.of(timezone.now())
    first = read_period(query["since"]) if "since" in query else last
    if last < first:
        raise MonthsBackwards()
    return first, last
