"""What gpustat and nvitop see through the same library: independent readers of the driver.

Run as a program with the library on LD_LIBRARY_PATH: for each line that it reads it writes one
line of JSON: what each shows of a card, nvitop also of a MIG instance; null: it does not know.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any


def of_gpustat() -> dict[str, Any]:
    """Return what gpustat shows by UUID, of the cards that answer."""
    return {
        gpu["uuid"]: {
            "percent": gpu["utilization.gpu"],
            "memory_mib": gpu["memory.used"],
        }
        for gpu in (each.jsonify() for each in import_module("gpustat").new_query().gpus)
        if "uuid" in gpu  # of a card that is lost it has only the index
    }


def of_nvitop() -> dict[str, Any]:
    """Return what nvitop shows by UUID; of a MIG instance by its own."""
    device = import_module("nvitop").Device
    found: dict[str, Any] = {}
    for card in device.all():
        for each in [card, *card.mig_devices()]:
            found[each.uuid()] = {
                "percent": _number(each.gpu_utilization()),
                "memory_mib": (_number(each.memory_used()) or 0) >> 20,
            }
    return found


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def main() -> None:
    """Answer until the input ends."""
    for _ in sys.stdin:
        print(json.dumps({"gpustat": of_gpustat(), "nvitop": of_nvitop()}), flush=True)


if __name__ == "__main__":
    main()
