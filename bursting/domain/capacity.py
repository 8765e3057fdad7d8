"""What can be rented from a cloud, and for how much: values only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ledger.domain.money import Money, Rate
from listings.domain.gpus import is_of, model_matches
from listings.domain.markets import within


@dataclass(frozen=True, slots=True, order=True)
class InstancePrice:
    """What one whole instance costs: nano-units of the currency per hour.

    Clouds price instances and bids price GPUs; taking one for the other is a mistake of the
    factor 8, so the two never share a type.
    """

    nanos_per_instance_hour: int
    currency: str = "USD"

    def __post_init__(self) -> None:
        assert self.nanos_per_instance_hour > 0
        assert len(self.currency) == 3

    def nanos_per_gpu_hour(self, gpus: int) -> int:
        """Return the price of one of the instance's `gpus`.

        Rounds up, so that what the GPUs bring in always covers what the instance costs.
        """
        assert gpus > 0
        return -(-self.nanos_per_instance_hour // gpus)

    def cost(self, span: timedelta) -> Money:
        """Return what the whole instance costs over a span; nothing where that is below zero."""
        millis = max(span, timedelta()) // timedelta(milliseconds=1)
        return Rate(self.nanos_per_instance_hour, self.currency).charge(millis)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNeed:
    """What is looked for: so many GPUs in one machine, each at least so able.

    gpu_models: any of these or a kind of it; empty: any. regions: in any of these or a part of it;
    empty: anywhere. not_models, not_regions: in none of these. nvlink_min: so many joined at least.
    compute_capability_min: NVIDIA's, such as `8.9`.
    spot: whether capacity that the cloud may take back at short notice will do.
    """

    gpus: int
    gpu_models: tuple[str, ...] = ()
    gpu_memory_mib_min: int = 0
    compute_capability_min: str | None = None
    nvlink: bool = False
    nvlink_min: int = 0
    regions: tuple[str, ...] = ()
    not_models: tuple[str, ...] = ()
    not_regions: tuple[str, ...] = ()
    spot: bool = False

    def __post_init__(self) -> None:
        assert self.gpus > 0
        assert self.gpu_memory_mib_min >= 0


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class InstanceSpec:
    """What a launch asks for, in the cloud's own words."""

    instance_type: str
    zone: str
    spot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudOffer:
    """One kind of instance in one zone, as the cloud quotes it. No promise that it has one."""

    cloud: str
    region: str
    spec: InstanceSpec
    gpu_model: str
    gpus: int
    gpu_memory_mib: int
    compute_capability: str
    nvlink: bool
    price: InstancePrice

    def __post_init__(self) -> None:
        assert self.gpus > 0

    @property
    def nanos_per_gpu_hour(self) -> int:
        """The quoted price of one GPU, rounded up to a whole nano-unit."""
        return self.price.nanos_per_gpu_hour(self.gpus)

    def serves(self, need: GpuNeed) -> bool:
        """Test if one such instance is enough for `need`."""
        return (
            self.gpus >= max(need.gpus, need.nvlink_min)
            and self.gpu_memory_mib >= need.gpu_memory_mib_min
            and (
                not need.gpu_models
                or any(model_matches(asked, self.gpu_model) for asked in need.gpu_models)
            )
            and (
                need.compute_capability_min is None
                or version(self.compute_capability) >= version(need.compute_capability_min)
            )
            and (self.nvlink or not need.nvlink)
            and not any(is_of(named, self.gpu_model) for named in need.not_models)
            and (not need.regions or any(within(self.region, each) for each in need.regions))
            and not any(within(self.region, each) for each in need.not_regions)
            and (need.spot or not self.spec.spot)
        )


def version(text: str) -> tuple[int, ...]:
    """Return `10.0` as (10, 0), which is above (9, 0); as text it would be below."""
    return tuple(int(part) for part in text.split("."))
