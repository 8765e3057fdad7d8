"""What NVML tells of the PCIe link of a card."""

from __future__ import annotations

from typing import Any

from .port import Link


def link_of(nvml: Any, card: Any) -> Link | None:
    """Return the link as it is now; None: the card or the driver does not say."""
    try:
        lanes = int(nvml.nvmlDeviceGetCurrPcieLinkWidth(card))
        generation = int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(card))
    except nvml.NVMLError:
        return None
    try:
        replays = int(nvml.nvmlDeviceGetPcieReplayCounter(card))
    except nvml.NVMLError:
        replays = 0
    return Link(lanes, generation, replays)
