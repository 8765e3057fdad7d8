"""Price lists on file: what each type of instance holds and costs.

A list goes stale by nature, so it names its source and date, and an operator may give another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bursting.domain.capacity import CloudOffer, GpuNeed, InstancePrice, InstanceSpec
from ledger.domain.money import NANOS_PER_UNIT, nanos_of
from ledger.domain.refusal import Invalid

PRICE_NANOS_MAX = 1_000_000 * NANOS_PER_UNIT
EC2_LIST = Path(__file__).with_name("ec2_prices.json")


class PriceListInvalid(ValueError):
    """The price list cannot be used; the message names the file, the entry and the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """What one type of instance holds, and its price on demand."""

    instance_type: str
    gpu_model: str
    gpus: int
    gpu_memory_mib: int
    compute_capability: str
    nvlink: bool
    price: InstancePrice

    def serves(self, need: GpuNeed) -> bool:
        """Test if this type would serve `need` at any place and price."""
        spec = InstanceSpec(instance_type=self.instance_type, zone="", spot=need.spot)
        anywhere = replace(need, regions=(), not_regions=())
        return self.offer(cloud="", region="", spec=spec, price=self.price).serves(anywhere)

    def offer(
        self, *, cloud: str, region: str, spec: InstanceSpec, price: InstancePrice
    ) -> CloudOffer:
        """Return this type as `cloud` offers it in one zone, at a price of that place."""
        return CloudOffer(
            cloud=cloud,
            region=region,
            spec=spec,
            gpu_model=self.gpu_model,
            gpus=self.gpus,
            gpu_memory_mib=self.gpu_memory_mib,
            compute_capability=self.compute_capability,
            nvlink=self.nvlink,
            price=price,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """One region's prices. `source` and `as_of` say where they come from, for people."""

    source: str
    as_of: str
    currency: str
    types: Mapping[str, InstanceType]


def nanos(text: str) -> int:
    """Return the decimal price of an hour as whole nano-units.

    Raises:
        ValueError: not a plain decimal number above zero, or finer than a nano-unit.
    """
    try:
        price = nanos_of(text)
    except Invalid as refused:
        raise ValueError(f"{text!r}: {refused}") from None
    if not 0 < price <= PRICE_NANOS_MAX:
        raise ValueError(f"{text!r}: a price lies above 0 and up to a million units")
    return price


def read_price_list(path: Path = EC2_LIST) -> PriceList:
    """Read a price list; the form is that of the one bundled here, prices as decimal text.

    Raises: PriceListInvalid, OSError.
    """
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        _check_fields(given, {"source", "as_of", "currency", "instance_types"})
        currency = given["currency"]
        if not (isinstance(currency, str) and len(currency) == 3 and currency.isupper()):
            raise ValueError(f"currency is a code like USD, not {currency!r}")
        types: dict[str, InstanceType] = {}
        for entry in given["instance_types"]:
            parsed = _read_type(entry, currency)
            if parsed.instance_type in types:
                raise ValueError(f"{parsed.instance_type} is listed twice")
            types[parsed.instance_type] = parsed
    except (ValueError, TypeError) as error:
        raise PriceListInvalid(f"{path.name}: {error}") from error
    return PriceList(
        source=str(given["source"]), as_of=str(given["as_of"]), currency=currency, types=types
    )


def _read_type(entry: Mapping[str, object], currency: str) -> InstanceType:
    _check_fields(
        entry,
        {
            "instance_type",
            "gpu_model",
            "gpus",
            "gpu_memory_mib",
            "compute_capability",
            "nvlink",
            "price_per_instance_hour",
        },
    )
    name = entry["instance_type"]
    model, price = entry["gpu_model"], entry["price_per_instance_hour"]
    gpus, memory_mib = entry["gpus"], entry["gpu_memory_mib"]
    capability, nvlink = entry["compute_capability"], entry["nvlink"]
    if not (isinstance(name, str) and isinstance(model, str) and isinstance(price, str)):
        raise ValueError(f"{name}: type, model and price are text")
    if not isinstance(capability, str) or not re.fullmatch(r"[0-9]{1,2}\.[0-9]", capability):
        raise ValueError(f"{name}: compute_capability is text like 9.0, not {capability!r}")
    if not isinstance(nvlink, bool):
        raise ValueError(f"{name}: nvlink is true or false")
    if type(gpus) is not int or type(memory_mib) is not int or gpus < 1 or memory_mib < 1:
        raise ValueError(f"{name}: gpus and gpu_memory_mib are whole numbers above 0")
    try:
        price_nanos = nanos(price)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return InstanceType(
        instance_type=name,
        gpu_model=model,
        gpus=gpus,
        gpu_memory_mib=memory_mib,
        compute_capability=capability,
        nvlink=nvlink,
        price=InstancePrice(price_nanos, currency),
    )


def _check_fields(given: object, wanted: set[str]) -> None:
    if not isinstance(given, dict) or set(given) != wanted:
        got = sorted(given) if isinstance(given, dict) else type(given).__name__
        raise ValueError(f"expected the fields {sorted(wanted)}, not {got}")
