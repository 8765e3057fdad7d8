"""`manage.py reconcile`: each record of a month's money against the next; fail by what differs."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ledger.domain.periods import Period, read_period
from ledger.domain.reconciling import Leg, unexplained
from ledger.domain.refusal import Refusal
from ledger.reconciling import reconcile

NAMED_MAX = 20


class Command(BaseCommand):
    """One line a leg and reason; exit status 1 if anything differs without a reason."""

    help = "Compare samples, usage windows, charges, journal and accounts of a month."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the month, and --json for machines."""
        parser.add_argument(
            "period", nargs="?", metavar="2026-11", help="a month in UTC; else the present one"
        )
        parser.add_argument("--json", action="store_true", help="all pairs and differences")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print what was compared, and fail by what nothing explains."""
        now = datetime.now(UTC)
        try:
            asked = options["period"]
            period = read_period(asked) if asked else Period.of(now)
        except Refusal as refusal:
            raise CommandError(str(refusal)) from None
        legs = reconcile(period, now=now)
        left = unexplained(legs)
        if options["json"]:
            said = {"period": str(period), "ok": not left, "legs": [asdict(leg) for leg in legs]}
            self.stdout.write(json.dumps(said, indent=1))
        else:
            self._tell(period, legs)
        if left:
            more = f", and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else ""
            named = "\n".join(
                f"  {each.subject}: {each.amount:+,} {each.unit} ({each.words})"
                for each in left[:NAMED_MAX]
            )
            raise CommandError(f"{len(left)} differences without a reason{more}:\n{named}")

    def _tell(self, period: Period, legs: list[Leg]) -> None:
        self.stdout.write(f"{period}")
        for leg in legs:
            reasons = Counter(each.reason for each in leg.differences)
            wrong = reasons.pop("unexplained", 0)
            mark = "FAIL" if wrong else "ok  "
            explained = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
            detail = f"; explained: {explained}" if explained else ""
            detail += f"; without a reason: {wrong}" if wrong else ""
            self.stdout.write(f"{mark} {leg.title}: {len(leg.pairs)} compared{detail}")
