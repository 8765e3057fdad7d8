"""What an agent may say of a GPU, of the driver, or of its host."""

from __future__ import annotations

from typing import Literal

HealthKind = Literal[
    "gpu-lost",
    "xid",
    "driver-mismatch",
    "stray-process",
    "recovered",
    "card-filled",
    "card-free",
    "cleaned",
    "accounting-differs",
    "memory-fault",
    "memory-well",
    "slowed",
    "steady",
    "cannot-start",
    "can-start",
    "diagnostic-passed",
    "diagnostic-failed",
]
