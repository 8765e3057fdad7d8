"""When a host was heard: what it had to say in time counts from when its line was up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from ledger.domain.ids import HostId


@dataclass(frozen=True, slots=True)
class Heard:
    """Since when a host has been heard without a long pause, and when it was heard last."""

    since: datetime
    until: datetime


Contacts = Mapping[HostId, Heard]
