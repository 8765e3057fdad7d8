"""What EC2's answers mean for us: states, ends, prices, and the warnings among them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from bursting.clouds.port import CloudState, Interruption
from ledger.domain.money import NANOS_PER_UNIT

SPOT_NOTICE = timedelta(minutes=2)
"""How long before the loss EC2 marks a spot instance (EC2 user guide, interruption notices)."""
STATES: dict[str, CloudState] = {
    "pending": "pending",
    "running": "running",
    "shutting-down": "terminating",
    "stopping": "terminating",
    "stopped": "terminating",
    "terminated": "terminated",
}
ENDED = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
"""The moment in EC2's reason for a state, such as `User initiated (2026-01-05 12:00:00 GMT)`."""
SPOT_ENDINGS = ("marked-for-termination", "marked-for-stop")
RETIREMENTS = ("instance-retirement", "instance-stop")


def ended_at(reason: str) -> datetime | None:
    """Return when EC2 says that an instance ended; None where it gives no moment."""
    found = ENDED.search(reason)
    if found is None:
        return None
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)


def nanos_up(price: str) -> int:
    """Return a decimal price in nano-units, rounded up to a whole one."""
    whole, _, fraction = price.partition(".")
    digits = fraction[:9].ljust(9, "0")
    return int(whole) * NANOS_PER_UNIT + int(digits) + any(c != "0" for c in fraction[9:])


def spot_endings(pages: Iterable[Any]) -> list[Interruption]:
    """Return the spot instances that EC2 has marked for their end."""
    return [
        Interruption(
            instance_id=asked["InstanceId"],
            at=asked["Status"]["UpdateTime"] + SPOT_NOTICE,
            reason=asked["Status"]["Code"],
        )
        for page in pages
        for asked in page["SpotInstanceRequests"]
        if asked["Status"]["Code"] in SPOT_ENDINGS
    ]


def retirements(pages: Iterable[Any]) -> list[Interruption]:
    """Return the instances whose machines EC2 is to stop or to retire."""
    return [
        Interruption(instance_id=status["InstanceId"], at=event["NotBefore"], reason=event["Code"])
        for page in pages
        for status in page["InstanceStatuses"]
        for event in status.get("Events", [])
        if event["Code"] in RETIREMENTS
        and not event["Description"].startswith(("[Completed]", "[Canceled]"))
    ]
