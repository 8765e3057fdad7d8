"""What a card takes, by NVIDIA's NVML. The counter is of the whole card, also where MIG is on.

Fact it rests on (NVML reference): "total energy consumption for this GPU in millijoules since the
driver was last reloaded", on Volta and later; refused as not supported for a MIG device handle.
"""

from __future__ import annotations

from typing import Any

from .port import Energy


def energy_of(nvml: Any, device: Any, uuid: str) -> Energy | None:
    """Return the counter of a device's card; None: it has none. Raises: NVMLError."""
    card, card_uuid, slices, of = device, uuid, 1, 1
    if uuid.startswith("MIG-"):
        card = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
        card_uuid = nvml.nvmlDeviceGetUUID(card)
        slices = nvml.nvmlDeviceGetAttributes(device).computeInstanceSliceCount
        of = max(slices, nvml.nvmlDeviceGetMaxMigDeviceCount(card))
    try:
        counted = nvml.nvmlDeviceGetTotalEnergyConsumption(card)
    except nvml.NVMLError as error:
        if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            return None
        raise
    return Energy(card_uuid, int(counted), slices, of)
