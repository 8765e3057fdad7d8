"""What a cloud handed out, and what runs on it, against what was planned.

An answer is no echo of the question: a cloud may hand out another machine than was asked for, and
an agent may find other GPUs in it than the price list says. The plan set the price at which the
machine is listed, so what differs from it must never be listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from bursting.domain.capacity import InstancePrice
from bursting.domain.events import BurstIntended, Told
from ledger.domain.money import Money
from listings.domain.events import Gpu
from listings.domain.gpus import model_matches

PPM = 1_000_000
PRICE_ABOVE_MAX_PPM = 10_000
"""How far above its quote a machine may cost: 1 %. Spot prices move while a launch is under way."""
PRICE_BELOW_MAX_PPM = 500_000
"""How far below: half. What is told as less is the price of one GPU, or of another machine."""
MEMORY_OFF_MAX_PPM = 100_000
"""How far the memory an agent finds may lie from the plan: 10 %; drivers keep some for themselves,
and price lists round."""


def hourly_of(intent: BurstIntended) -> InstancePrice:
    """Return what the whole instance was quoted at."""
    if intent.hourly is not None:
        return InstancePrice(intent.hourly.nanos, intent.hourly.currency)
    return InstancePrice(intent.price.nanos_per_gpu_hour * intent.gpus, intent.price.currency)


def hourly_told(intent: BurstIntended, told: Told | None) -> InstancePrice:
    """Return what an instance costs per hour: as its cloud says, or else as was quoted.

    A machine of unknown price costs for each of its GPUs what one of the plan does.
    """
    planned = hourly_of(intent)
    if told is None:
        return planned
    if told.hourly is not None:
        return InstancePrice(told.hourly.nanos, told.hourly.currency)
    if told.gpus in (0, intent.gpus):
        return planned
    return InstancePrice(planned.nanos_per_gpu_hour(intent.gpus) * told.gpus, planned.currency)


def differences(intent: BurstIntended, told: Told, *, price: bool = True) -> list[str]:
    """Return in words how what was handed out differs from what was planned; empty where not.

    price: whether to compare it too; a spot price that moves later is no other machine.
    """
    wrong = []
    if told.instance_type != intent.instance_type:
        wrong.append(f"type {told.instance_type} instead of {intent.instance_type}")
    if told.gpus != intent.gpus:
        wrong.append(f"{_gpus(told.gpus)} instead of {intent.gpus}")
    if told.gpu_model and not model_matches(intent.gpu_model, told.gpu_model):
        wrong.append(f"{told.gpu_model} instead of {intent.gpu_model}")
    if told.zone != intent.zone:
        wrong.append(f"zone {told.zone} instead of {intent.zone}")
    if told.spot != intent.spot:
        wrong.append(f"{_class(told.spot)} instead of {_class(intent.spot)}")
    if price and told.hourly is not None and not _is_near(hourly_of(intent), told.hourly):
        quoted = hourly_of(intent)
        planned = Money(quoted.nanos_per_instance_hour, quoted.currency)
        wrong.append(f"{told.hourly} an hour instead of {planned}")
    return wrong


def gpu_differences(intent: BurstIntended, gpus: Sequence[Gpu]) -> list[str]:
    """Return in words how the GPUs that the machine's agent found differ from the plan.

    Fewer than planned are no difference: an agent may not have found all of them yet.
    """
    wrong = []
    if len(gpus) > intent.gpus:
        wrong.append(f"its agent finds {_gpus(len(gpus))} instead of {intent.gpus}")
    for gpu in gpus:
        if not model_matches(intent.gpu_model, gpu.model):
            wrong.append(f"its agent finds {gpu.model} instead of {intent.gpu_model}")
            break
    planned = intent.gpu_memory_mib
    for gpu in gpus:
        if planned and abs(gpu.memory_mib - planned) * PPM > planned * MEMORY_OFF_MAX_PPM:
            wrong.append(f"its agent finds {gpu.memory_mib} MiB a GPU instead of {planned}")
            break
    return wrong


def _is_near(planned: InstancePrice, told: Money) -> bool:
    quoted = planned.nanos_per_instance_hour
    return (
        told.currency == planned.currency
        and told.nanos * PPM <= quoted * (PPM + PRICE_ABOVE_MAX_PPM)
        and told.nanos * PPM >= quoted * (PPM - PRICE_BELOW_MAX_PPM)
    )


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def _class(spot: bool) -> str:
    return "spot" if spot else "on demand"
