"""What NVML tells of a card's memory and clocks. Nothing is changed, and no counter is reset.

A row of memory with an error that cannot be corrected is replaced by a spare one at the next reset
(Ampere and later), or its page is retired then (before); until then, and where no spare is left,
the card may hand the same error to whoever comes next.
Source: NVIDIA, "GPU Memory Error Management".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .port import Wear


def wear_of(nvml: Any, card: Any) -> Wear:
    """Return how worn a card is. What it does not know of itself counts as well."""
    asks = _asking(nvml)
    _, _, is_pending, has_failed = asks(nvml.nvmlDeviceGetRemappedRows, card) or (0, 0, 0, 0)
    retires = asks(nvml.nvmlDeviceGetRetiredPagesPendingStatus, card)
    memory = ""
    if has_failed:
        memory = "a row of its memory has errors and no spare row is left"
    elif is_pending:
        memory = "a row of its memory has errors and is replaced by a reset"
    elif retires:
        memory = "a page of its memory has errors and is retired by a reset"
    if memory:
        memory += _errors(nvml, card, asks)
    return Wear(memory, _slowed(nvml, asks(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, card)))


def _asking(nvml: Any) -> Callable[..., Any]:
    def ask(question: Any, *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except nvml.NVMLError:
            return None  # not of this card or driver; whether it answers at all others find out

    return ask


def _errors(nvml: Any, card: Any, asks: Callable[..., Any]) -> str:
    """Tell the errors that ECC could not correct, since the driver was loaded and ever."""
    counts = [
        asks(nvml.nvmlDeviceGetTotalEccErrors, card, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, since)
        for since in (nvml.NVML_VOLATILE_ECC, nvml.NVML_AGGREGATE_ECC)
    ]
    if None in counts:
        return ""
    return f" ({counts[0]} uncorrected errors since the driver was loaded, {counts[1]} ever)"


def _slowed(nvml: Any, reasons: int | None) -> str:
    told = {
        nvml.nvmlClocksThrottleReasonHwThermalSlowdown: "it is too hot",
        nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "its power supply holds it back",
    }
    return " and ".join(said for bit, said in told.items() if (reasons or 0) & bit)
